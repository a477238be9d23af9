"""How a step is made to fit its devices, with which engine, and why.

What costs least is tried first, in micro-batches of any size:

    one slot                 as it is; `recompute` (1.4 times as long); `offload` (the bus is slow)
    several slots, adapters  weights copied; with `recompute`; `shard_weights`; both; `offload`
    several slots, all       `shard_weights`; with `recompute`; `offload`
    another optimizer        weights copied; with `recompute`

A slot that has others never offloads before it shards: NVLink carries ten times what the bus does.
What a request sets stays as it is set.
"""

from collections.abc import Collection, Iterator
from typing import Final

from msgspec.structs import replace

from schemas.dataset import BaseTokens
from schemas.model import Base
from schemas.submission import JobSpec
from schemas.training import Device, HyperParameters
from tunery.plan.engines import has_plain_layers
from tunery.plan.memory import WIDTH, memory_bytes, precision_of
from tunery.plan.micro_batches import rows_at_once, with_rows_at_once

# Knobs that the plan sets where a request does not, in the order in which reasons name them.
PLANNED: Final = ("recompute", "shard_weights", "offload")
# Ways to fit a step, what costs least first: recompute, shard_weights, offload.
Way = tuple[bool, bool, bool]
ONE_SLOT: Final[tuple[Way, ...]] = (
    (False, False, False),
    (True, False, False),
    (True, False, True),
)
COPIED: Final[tuple[Way, ...]] = ONE_SLOT[:2]
SHARDED: Final[tuple[Way, ...]] = (
    (False, True, False),
    (True, True, False),
    (True, True, True),
)


def fitted(
    base: Base,
    hyper: HyperParameters,
    device: Device,
    tokens: BaseTokens | None,
    limit_bytes: int,
    asked: Collection[str] = (*PLANNED, "engine"),
    ranks: int = 1,
    on_node: int = 0,
) -> HyperParameters:
    """Return the same optimizer step in micro-batches that fit the memory, with the engine to use.

    If nothing fits, return one row at a time in the least memory.

    asked: knobs of `PLANNED`, and "engine", that the request sets
    ranks: number of ranks that share a step
    on_node: largest number of these ranks on one node; 0: all
    """
    smallest = hyper
    for way in _ways(base.family, hyper, device, asked, ranks):
        shards = on_node if way.shard_weights and on_node < ranks else 0
        for rows in range(rows_at_once(hyper), 0, -1):
            smallest = replace(with_rows_at_once(way, rows), shards=shards)
            if memory_bytes(base, smallest, device, tokens, ranks) <= limit_bytes:
                return smallest
    return smallest


def memory_reason(spec: JobSpec) -> str | None:
    """Why the plan has set knobs of `PLANNED`, in words; None: it has set none."""
    base, hyper = spec.base, spec.hyper
    chosen = [name for name in PLANNED if name in spec.auto]
    if not chosen:
        return None
    before = replace(hyper, **dict.fromkeys(chosen, False))  # its number of shards stays
    asked = [name for name in (*PLANNED, "engine") if name not in spec.auto]
    needs = []
    for way in _ways(base.family, before, spec.device, asked, spec.slots):
        size = memory_bytes(base, with_rows_at_once(way, 1), spec.device, ranks=spec.slots)
        with_what = " and ".join(name for name in PLANNED if getattr(way, name)) or "neither"
        needs.append(f"{size / 1e9:.1f} GB with {with_what}")
        if all(getattr(way, name) == getattr(hyper, name) for name in PLANNED):
            break
    text = f"a packed row at a time needs {', '.join(needs)}: the first that a slot has is taken"
    if hyper.shard_weights:
        shards = f"{hyper.shards} slots of a node" if hyper.shards else f"{spec.slots} slots"
        text += f"; each of {shards} keeps a share of the weights"
    if hyper.offload:
        kept = WIDTH[precision_of(hyper, spec.device)] * base.parameters
        text += f"; the {kept / 1e9:.1f} GB of weights stay in the memory of the machine"
    return text


def engine_reason(spec: JobSpec) -> str:
    """Why this engine runs the job, in words."""
    reason, hyper = _engine_reason(spec), spec.hyper
    if hyper.precision == "fp8":
        reason += "; products in float8 have run emulated on processors only"
    if hyper.optimizer != "adamw":
        reason += f"; the optimizer {hyper.optimizer} has run on processors only"
    return reason


def _engine_reason(spec: JobSpec) -> str:
    hyper, slots = spec.hyper, spec.slots
    if "engine" not in spec.auto:
        return "the request names it"
    if slots == 1:
        return (
            "one slot has too little memory for the weights: FSDP2 keeps them in the machine's"
            if hyper.offload
            else "one slot needs no process group"
        )
    if hyper.tensor_parallel > 1:
        return "FSDP2 divides matrices: the request sets tensor_parallel"
    if not hyper.shard_weights:
        return f"each of {slots} slots has the memory for a copy of all weights"
    if hyper.adaptation == "full":
        return f"all weights are trained: each of {slots} slots keeps a share of them"
    return f"a slot has no memory for a copy of the base: each of {slots} keeps a share of it"


def _ways(
    family: str, hyper: HyperParameters, device: Device, asked: Collection[str], ranks: int
) -> Iterator[HyperParameters]:
    """The step in all ways that the plan may choose, what costs least first."""
    if not has_plain_layers(family) or hyper.optimizer != "adamw":
        ways = COPIED
    elif hyper.tensor_parallel > 1:
        ways = SHARDED
    elif ranks == 1:
        ways = ONE_SLOT
    else:
        ways = SHARDED if hyper.adaptation == "full" else COPIED + SHARDED
    earlier: list[HyperParameters] = []
    for way in ways:
        free = {name: value for name, value in zip(PLANNED, way, strict=True) if name not in asked}
        candidate = _with_engine(replace(hyper, **free), asked, ranks)
        if free.get("offload") and not _may_offload(candidate, device, ranks):
            continue
        if candidate not in earlier:
            earlier.append(candidate)
            yield candidate


def _may_offload(hyper: HyperParameters, device: Device, ranks: int) -> bool:
    """Return whether the plan may choose offload. On a CPU, host memory is the device's memory."""
    may_move = hyper.engine != "single" and (ranks == 1 or hyper.shard_weights)
    is_usual = hyper.precision != "fp8" and hyper.optimizer == "adamw"
    return device == "cuda" and may_move and is_usual


def _with_engine(hyper: HyperParameters, asked: Collection[str], ranks: int) -> HyperParameters:
    if "engine" in asked:
        return hyper
    return replace(hyper, engine="fsdp2" if ranks > 1 or hyper.offload else "single")
