"""Fitting a step into memory: cheapest way first, with which engine, and why."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.tunery.plan.samples import SMOL, base_of, job
from tunery.plan.fitting import PLANNED, engine_reason, fitted, memory_reason
from tunery.plan.hyperparameters import resolve
from tunery.plan.memory import memory_bytes
from tunery.plan.micro_batches import rows_at_once

GB = 10**9
LARGE = base_of("Qwen2.5-32B")
ASKED: dict[str, Any] = {"batch_size": 8, "max_length": 2_048, "precision": "bf16", "dropout": 0}


def test_training_m5_a_step_is_divided_until_it_fits() -> None:
    hyper, _ = resolve({"batch_size": 16}, SMOL, None, 1)
    sizes = [
        rows_at_once(fitted(SMOL, hyper, "cpu", None, gigabytes * GB)) for gigabytes in (999, 16, 1)
    ]
    assert sizes[0] == 16 > sizes[1] > sizes[2] == 1


@pytest.mark.parametrize(
    ("changes", "gigabytes", "slots", "engine", "ways"),
    [
        ({}, 999, 1, "single", ""),
        ({}, 141, 1, "single", ""),
        ({}, 80, 1, "single", "recompute"),
        ({}, 40, 1, "fsdp2", "recompute offload"),
        ({}, 141, 8, "fsdp2", ""),
        ({}, 80, 8, "fsdp2", "recompute"),
        ({}, 60, 8, "fsdp2", "shard_weights"),
        ({}, 24, 8, "fsdp2", "recompute shard_weights"),
        ({}, 12, 8, "fsdp2", "recompute shard_weights offload"),
        ({"adaptation": "full"}, 999, 1, "single", ""),
        ({"adaptation": "full"}, 999, 8, "fsdp2", "shard_weights"),
        ({"adaptation": "full"}, 103, 8, "fsdp2", "recompute shard_weights"),
        ({"adaptation": "full"}, 40, 8, "fsdp2", "recompute shard_weights offload"),
    ],
)
def test_what_costs_least_is_taken_and_nothing_is_offloaded_before_it_is_sharded(
    changes: dict[str, Any], gigabytes: int, slots: int, engine: str, ways: str
) -> None:
    hyper, _ = resolve(ASKED | changes, LARGE, None, 1, "cuda")
    chosen = fitted(LARGE, hyper, "cuda", None, gigabytes * GB, (), slots)
    assert (chosen.engine, [name for name in PLANNED if getattr(chosen, name)]) == (
        engine,
        ways.split(),
    )
    assert memory_bytes(LARGE, chosen, "cuda", ranks=slots) <= gigabytes * GB
    unchanged = dict.fromkeys(PLANNED, False) | {"engine": "single", "accumulation": 1}
    assert replace(chosen, **unchanged) == hyper, "nothing else changes"


def test_what_a_request_sets_stays() -> None:
    hyper, _ = resolve(ASKED, LARGE, None, 1, "cuda")

    def ways(*asked: str, slots: int = 1) -> list[str]:
        kept = fitted(LARGE, hyper, "cuda", None, GB, asked, slots)
        return [name for name in PLANNED if getattr(kept, name)]

    assert ways("recompute") == ["offload"]
    assert ways("offload") == ways("engine") == ["recompute"], "single keeps its weights"
    assert ways(*PLANNED) == []
    assert ways("shard_weights", slots=8) == ["recompute"], "copies are not offloaded"
    deepspeed = replace(hyper, engine="deepspeed")
    assert fitted(LARGE, deepspeed, "cuda", None, GB, ("engine",), 8).engine == "deepspeed"


def test_more_ranks_need_less_memory_of_sharded_weights() -> None:
    asked = ASKED | {"adaptation": "full", "shard_weights": True, "engine": "fsdp2"}
    hyper, _ = resolve(asked, LARGE, None, 1, "cuda")
    sizes = [memory_bytes(LARGE, hyper, "cuda", ranks=ranks) for ranks in (2, 4, 8, 16)]
    assert sizes == sorted(sizes, reverse=True)
    whole = replace(hyper, shard_weights=False)
    assert sizes[-1] < memory_bytes(LARGE, whole, "cuda", ranks=16) / 3


def test_memory_of_a_processor_is_that_of_the_machine() -> None:
    hyper, _ = resolve(ASKED, LARGE, None, 1)
    assert not fitted(LARGE, hyper, "cpu", None, GB, ()).offload


def test_the_reason_has_what_each_way_needs() -> None:
    hyper, auto = resolve(ASKED, LARGE, None, 1, "cuda")
    spec = replace(job(hyper), base=LARGE, device="cuda", auto=auto)
    assert memory_reason(spec) is None
    chosen = fitted(LARGE, hyper, "cuda", None, 24 * GB, ())
    planned = replace(spec, hyper=chosen, auto=(*auto, *PLANNED, "engine"))
    assert memory_reason(planned) == (
        "a packed row at a time needs 99.7 GB with neither, 71.4 GB with recompute, 9.0 GB with "
        "recompute and offload: the first that a slot has is taken; the 65.5 GB of weights stay in "
        "the memory of the machine"
    )
    assert "FSDP2 keeps them" in engine_reason(planned)
    again = replace(spec, hyper=replace(chosen, offload=False), auto=(*auto, "recompute", "engine"))
    assert memory_reason(again) == (
        "a packed row at a time needs 99.7 GB with neither, 71.4 GB with recompute: the first "
        "that a slot has is taken"
    )


@pytest.mark.parametrize(
    ("changes", "gigabytes", "slots", "engine", "memory"),
    [
        ({}, 141, 1, "one slot needs no process group", None),
        ({}, 141, 8, "each of 8 slots has the memory for a copy of all weights", None),
        ({}, 24, 8, "a slot has no memory for a copy of the base", "a share of the weights"),
        ({"adaptation": "full"}, 141, 8, "all weights are trained", "a share of the weights"),
        ({"engine": "deepspeed"}, 141, 8, "the request names it", None),
    ],
)
def test_an_engine_is_chosen_with_its_reason(
    changes: dict[str, Any], gigabytes: int, slots: int, engine: str, memory: str | None
) -> None:
    hyper, auto = resolve(ASKED | changes, LARGE, None, 1, "cuda")
    asked = tuple(changes.keys() & {"engine"})
    chosen = fitted(LARGE, hyper, "cuda", None, gigabytes * GB, asked, slots)
    planned = [name for name in PLANNED if getattr(chosen, name)]
    planned += [] if asked else ["engine"]
    spec = replace(job(chosen, slots=slots), base=LARGE, device="cuda", auto=(*auto, *planned))
    assert engine in engine_reason(spec)
    reason = memory_reason(spec)
    assert reason is None if memory is None else memory in (reason or "")
