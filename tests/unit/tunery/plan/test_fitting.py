"""What is left out of a device's memory, cheapest first, and why."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.tunery.plan.samples import SMOL, job
from tests.unit.tunery.plan.test_exchange import base_of
from tunery.plan.fitting import PLANNED, fitted, memory_reason, unsharded, unstreamed
from tunery.plan.hyperparameters import problems, resolve
from tunery.plan.memory import memory_bytes
from tunery.plan.micro_batches import rows_at_once

GB = 10**9
LARGE = base_of("Qwen2.5-32B")
ASKED: dict[str, Any] = {"batch_size": 8, "max_length": 2_048, "precision": "bf16"}


def test_training_m5_a_step_is_divided_until_it_fits() -> None:
    hyper, _ = resolve({"batch_size": 16}, SMOL, None, 1)
    sizes = [
        rows_at_once(fitted(SMOL, hyper, "cpu", None, gigabytes * GB)) for gigabytes in (999, 16, 1)
    ]
    assert sizes[0] == 16 > sizes[1] > sizes[2] == 1


@pytest.mark.parametrize(
    ("gigabytes", "rows", "recompute", "offload"),
    [
        (999, 8, False, False),
        (200, 2, False, False),
        (141, 1, False, False),
        (80, 4, True, False),
        (40, 8, True, True),
        (24, 4, True, True),
        (1, 1, True, True),  # it does not fit, and is refused for what it needs so
    ],
)
def test_what_costs_least_is_taken(
    gigabytes: int, rows: int, recompute: bool, offload: bool
) -> None:
    hyper, _ = resolve(ASKED | {"dropout": 0}, LARGE, None, 1, "cuda")
    chosen = fitted(LARGE, hyper, "cuda", None, gigabytes * GB, ())
    assert (rows_at_once(chosen), chosen.recompute, chosen.offload) == (rows, recompute, offload)
    assert chosen == replace(hyper, accumulation=8 // rows, recompute=recompute, offload=offload), (
        "nothing else changes"
    )
    fits = memory_bytes(LARGE, chosen, "cuda") <= gigabytes * GB
    assert fits == (gigabytes > 1)


def test_what_a_request_sets_stays() -> None:
    hyper, _ = resolve(ASKED, LARGE, None, 1, "cuda")
    kept = fitted(LARGE, hyper, "cuda", None, GB, ("recompute",))
    assert (kept.recompute, kept.offload) == (False, False), "streaming needs recompute"
    kept = fitted(LARGE, hyper, "cuda", None, GB, ("offload",))
    assert (kept.recompute, kept.offload) == (True, False)
    kept = fitted(LARGE, hyper, "cuda", None, GB, PLANNED)
    assert (kept.recompute, kept.offload) == (False, False)


@pytest.mark.parametrize(
    "changes", [{"adaptation": "qlora"}, {"adaptation": "full"}, {"dora": True}]
)
def test_layers_that_cannot_be_streamed_are_not(changes: dict[str, Any]) -> None:
    hyper, _ = resolve(ASKED | changes, LARGE, None, 1, "cuda")
    chosen = fitted(LARGE, hyper, "cuda", None, GB, ())
    assert (chosen.recompute, chosen.offload) == (True, False)


@pytest.mark.parametrize(
    ("gigabytes", "ranks", "rows", "recompute", "shard_weights"),
    [
        (999, 8, 8, False, False),
        (280, 8, 4, True, False),
        (141, 8, 8, True, True),
        (102, 8, 1, True, True),
        (141, 1, 1, True, False),  # nobody is there to have the rest
        (48, 32, 4, True, True),
    ],
)
def test_weights_are_sharded_where_several_slots_have_too_little_memory(
    gigabytes: int, ranks: int, rows: int, recompute: bool, shard_weights: bool
) -> None:
    hyper, _ = resolve(ASKED | {"adaptation": "full"}, LARGE, None, 1, "cuda")
    chosen = fitted(LARGE, hyper, "cuda", None, gigabytes * GB, (), ranks)
    assert (rows_at_once(chosen), chosen.recompute, chosen.shard_weights) == (
        *(rows, recompute),
        shard_weights,
    )
    fits = memory_bytes(LARGE, chosen, "cuda", ranks=ranks) <= gigabytes * GB
    assert fits == (ranks > 1)
    kept = fitted(LARGE, hyper, "cuda", None, gigabytes * GB, ("shard_weights",), ranks)
    assert not kept.shard_weights, "what a request sets stays"


def test_more_ranks_need_less_memory_of_sharded_weights() -> None:
    asked = ASKED | {"adaptation": "full", "shard_weights": True}
    hyper, _ = resolve(asked, LARGE, None, 1, "cuda")
    whole = replace(hyper, shard_weights=False)
    assert hyper.recompute
    sizes = [memory_bytes(LARGE, hyper, "cuda", ranks=ranks) for ranks in (2, 4, 8, 16)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < memory_bytes(LARGE, whole, "cuda", ranks=16) / 3


def test_memory_of_a_processor_is_that_of_the_machine() -> None:
    hyper, _ = resolve(ASKED, LARGE, None, 1)
    assert not fitted(LARGE, hyper, "cpu", None, GB, ()).offload


@pytest.mark.parametrize(
    ("asked", "family", "what"),
    [
        ({"adaptation": "full"}, "llama", "every weight changes"),
        ({"adaptation": "qlora"}, "llama", "the four bits"),
        ({"dora": True}, "llama", "measures all weights"),
        ({"recompute": False}, "llama", "each layer once more"),
        ({"method": "reinforcement"}, "llama", "answers during the training"),
        ({"sample_every_steps": 5}, "llama", "answers during the training"),
        ({}, "mamba", "models of the family mamba"),
    ],
)
def test_offload_where_it_is_not_built_is_refused_with_the_reason(
    asked: dict[str, Any], family: str, what: str
) -> None:
    base = replace(SMOL, family=family)
    (problem,) = problems({"offload": True, **asked}, base)
    assert (problem.param, problem.reason.code) == ("offload", "not_streamed")
    assert what in str(problem.reason.params["what"])
    assert problems(asked, base) == ()
    assert problems({"offload": False, **asked}, base) == ()


@pytest.mark.parametrize(
    ("asked", "family", "what"),
    [
        ({"adaptation": "lora"}, "llama", "the base is only read"),
        ({"recompute": False}, "llama", "each layer once more"),
        ({"method": "kto"}, "llama", "not one pass"),
        ({"packing": False}, "llama", "each document is a pass"),
        ({"best_checkpoint": True}, "llama", "a copy of all weights"),
        ({"sample_every_steps": 5}, "llama", "answers during the training"),
        ({}, "mamba", "models of the family mamba"),
    ],
)
def test_sharding_where_it_is_not_built_is_refused_with_the_reason(
    asked: dict[str, Any], family: str, what: str
) -> None:
    base, asked = replace(SMOL, family=family), {"adaptation": "full"} | asked
    (problem,) = problems({"shard_weights": True, **asked}, base)
    assert (problem.param, problem.reason.code) == ("shard_weights", "not_sharded")
    assert what in str(problem.reason.params["what"])
    assert problems(asked, base) == ()
    assert unsharded("llama", {"adaptation": "full"}) is None


def test_offload_computes_again() -> None:
    hyper, _ = resolve({"offload": True}, SMOL, None, 1)
    assert (hyper.recompute, hyper.offload) == (True, True)
    assert unstreamed(SMOL.family, {"offload": True}) is None


def test_the_reason_has_what_each_way_needs() -> None:
    hyper, auto = resolve(ASKED | {"dropout": 0}, LARGE, None, 1, "cuda")
    spec = replace(job(hyper), base=LARGE, device="cuda", auto=auto)
    assert memory_reason(spec) is None
    chosen = fitted(LARGE, hyper, "cuda", None, 24 * GB, ())
    reason = memory_reason(replace(spec, hyper=chosen, auto=(*auto, *PLANNED)))
    assert reason == (
        "a packed row at a time needs 109.5 GB with neither, 71.6 GB with recompute, 11.1 GB with "
        "offload: the first that a slot has is taken; the 65.5 GB of the base stay in the memory "
        "of the machine"
    )
    again = memory_reason(
        replace(spec, hyper=replace(chosen, offload=False), auto=(*auto, "recompute"))
    )
    assert again == (
        "a packed row at a time needs 109.5 GB with neither, 71.6 GB with recompute: the first "
        "that a slot has is taken"
    )


def test_the_reason_for_shares_has_what_each_way_needs() -> None:
    hyper, auto = resolve(ASKED | {"adaptation": "full"}, LARGE, None, 1, "cuda")
    chosen = fitted(LARGE, hyper, "cuda", None, 141 * GB, (), 8)
    spec = replace(job(chosen, slots=8), base=LARGE, device="cuda", auto=(*auto, *PLANNED))
    assert memory_reason(spec) == (
        "a packed row at a time needs 303.1 GB with neither, 265.2 GB with recompute, 101.4 GB "
        "with shard_weights: the first that a slot has is taken; each of 8 slots keeps a part of "
        "the layers' weights"
    )
