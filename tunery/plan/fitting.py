"""How a step is made to fit one device, and why: the plan of a training's memory.

What costs least is tried first: the step as it is; in smaller micro-batches, which take about the
same time; with `recompute`, which takes 1.4 times as long; with `offload`, which waits for the bus
unless a micro-batch has thousands of tokens. What a request sets stays as it is set.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from msgspec import to_builtins
from msgspec.structs import replace

from schemas.dataset import BaseTokens
from schemas.model import Base
from schemas.submission import JobSpec
from schemas.training import Device, HyperParameters
from tunery.plan.memory import base_bytes, memory_bytes
from tunery.plan.micro_batches import rows_at_once, with_rows_at_once

PLANNED: Final = ("recompute", "offload")  # knobs that the plan sets where a request does not
# Of the architectures that a base's record tells apart, those of which one was tested: its layers
# are a plain list (`tests/unit/tunery/ml/test_offload.py`).
STREAMED_FAMILIES: Final = frozenset(
    {"llama", "mistral", "qwen", "olmo", "phi", "granite", "smollm"}
)


def unstreamed(family: str | None, asked: Mapping[str, Any]) -> str | None:
    """What keeps the layers of a base from being streamed, in words; None: they can be.

    family: None: the base is not known
    asked: hyper-parameters of a request, or all that there are
    """
    if asked.get("adaptation") == "full":
        return 'adaptation "full", with which every weight changes'
    if asked.get("adaptation") == "qlora":
        return 'adaptation "qlora", with which the device itself makes the four bits of all layers'
    if asked.get("dora") is True:
        return "dora, for which the device measures all weights first"
    if asked.get("recompute") is False:
        return "recompute false: a backward pass needs each layer once more"
    writes = asked.get("sample_every_steps") not in (None, "auto", 0)
    if writes or asked.get("method") == "reinforcement":
        return "answers during the training, each token of which would copy all layers"
    if family is not None and family not in STREAMED_FAMILIES:
        return f"models of the family {family}"
    return None


def fitted(
    base: Base,
    hyper: HyperParameters,
    device: Device,
    tokens: BaseTokens | None,
    limit_bytes: int,
    asked: Collection[str] = PLANNED,
    ranks: int = 1,
) -> HyperParameters:
    """The same step as it fits; where it never does, one row at a time in the least memory.

    asked: knobs of `PLANNED` that the request sets
    ranks: that share the optimizer
    """
    smallest = hyper
    for way in _ways(base, hyper, device, asked):
        for rows in range(rows_at_once(hyper), 0, -1):
            smallest = with_rows_at_once(way, rows)
            if memory_bytes(base, smallest, device, tokens, ranks) <= limit_bytes:
                return smallest
    return smallest


def memory_reason(spec: JobSpec) -> str | None:
    """Why the plan has set knobs of `PLANNED`, in words; None: it has set none."""
    base, hyper = spec.base, spec.hyper
    chosen = [name for name in PLANNED if name in spec.auto]
    if not chosen:
        return None
    before = replace(hyper, **dict.fromkeys(chosen, False))
    asked = [name for name in PLANNED if name not in chosen]
    needs = []
    for way in _ways(base, before, spec.device, asked):
        size = memory_bytes(base, with_rows_at_once(way, 1), spec.device, ranks=spec.slots)
        with_what = "offload" if way.offload else "recompute" if way.recompute else "neither"
        needs.append(f"{size / 1e9:.1f} GB with {with_what}")
        if (way.recompute, way.offload) == (hyper.recompute, hyper.offload):
            break
    text = f"a packed row at a time needs {', '.join(needs)}: the first that a slot has is taken"
    if hyper.offload:
        kept = base_bytes(base, replace(hyper, offload=False), spec.device)
        text += f"; the {kept / 1e9:.1f} GB of the base stay in the memory of the machine"
    return text


def _ways(
    base: Base, hyper: HyperParameters, device: Device, asked: Collection[str]
) -> Iterator[HyperParameters]:
    """The step in all ways that the plan may choose, what costs least first."""
    yield hyper
    if "recompute" not in asked and not hyper.recompute:
        hyper = replace(hyper, recompute=True)
        yield hyper
    may_stream = unstreamed(base.family, to_builtins(hyper)) is None and hyper.recompute
    if device == "cuda" and "offload" not in asked and not hyper.offload and may_stream:
        yield replace(hyper, offload=True)
