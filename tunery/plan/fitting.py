"""How a step is made to fit one device, and why: the plan of a training's memory.

What costs least is tried first: the step as it is; in smaller micro-batches, which take about the
same time; with `recompute`, which takes 1.4 times as long; with `offload`, which waits for the bus
unless a micro-batch has thousands of tokens, or `shard_weights`, with which ranks wait for each
other in each layer. What a request sets stays as it is set.
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
from tunery.plan.methods import SHARDED
from tunery.plan.micro_batches import rows_at_once, with_rows_at_once

# Knobs that the plan sets where a request does not.
PLANNED: Final = ("recompute", "offload", "shard_weights")
# Of the architectures that a base's record tells apart, those of which one was tested: its layers
# are a plain list (`tests/unit/tunery/ml/test_offload.py`).
PASSING_FAMILIES: Final = frozenset(
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
    if family is not None and family not in PASSING_FAMILIES:
        return f"models of the family {family}"
    return None


def unsharded(family: str | None, asked: Mapping[str, Any]) -> str | None:
    """What keeps the layers of a model from being dealt to ranks, as `unstreamed`."""
    adaptation = asked.get("adaptation") or "lora"
    if adaptation != "full":
        return f'adaptation "{adaptation}", with which the base is only read (offload is for that)'
    if asked.get("recompute") is False:
        return "recompute false: a backward pass needs each layer once more"
    method = asked.get("method") or "supervised"
    if method not in SHARDED:
        return f"the method {method}, of which a micro-batch is not one pass through the model"
    if asked.get("packing") is False:
        return "packing false, with which each document is a pass through the model"
    if asked.get("best_checkpoint") is True:
        return "best_checkpoint, which keeps a copy of all weights"
    if asked.get("sample_every_steps") not in (None, "auto", 0):
        return "answers during the training, each token of which would pass all layers"
    if family is not None and family not in PASSING_FAMILIES:
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
    ranks: that share a step
    """
    smallest = hyper
    for way in _ways(base, hyper, device, asked, ranks):
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
    for way in _ways(base, before, spec.device, asked, spec.slots):
        size = memory_bytes(base, with_rows_at_once(way, 1), spec.device, ranks=spec.slots)
        with_what = [name for name in PLANNED if getattr(way, name)] or ["neither"]
        needs.append(f"{size / 1e9:.1f} GB with {with_what[-1]}")
        if all(getattr(way, name) == getattr(hyper, name) for name in PLANNED):
            break
    text = f"a packed row at a time needs {', '.join(needs)}: the first that a slot has is taken"
    if hyper.offload:
        kept = base_bytes(base, replace(hyper, offload=False), spec.device)
        text += f"; the {kept / 1e9:.1f} GB of the base stay in the memory of the machine"
    if hyper.shard_weights:
        text += f"; each of {spec.slots} slots keeps a part of the layers' weights"
    return text


def _ways(
    base: Base, hyper: HyperParameters, device: Device, asked: Collection[str], ranks: int
) -> Iterator[HyperParameters]:
    """The step in all ways that the plan may choose, what costs least first."""
    yield hyper
    if "recompute" not in asked and not hyper.recompute:
        hyper = replace(hyper, recompute=True)
        yield hyper
    may_stream = unstreamed(base.family, to_builtins(hyper)) is None and hyper.recompute
    if device == "cuda" and "offload" not in asked and not hyper.offload and may_stream:
        yield replace(hyper, offload=True)
    may_shard = unsharded(base.family, to_builtins(hyper)) is None and hyper.recompute
    if ranks > 1 and "shard_weights" not in asked and not hyper.shard_weights and may_shard:
        yield replace(hyper, shard_weights=True)
