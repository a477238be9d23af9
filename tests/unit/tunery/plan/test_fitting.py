"""What is left out of a device's memory, cheapest first, and why."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.tunery.plan.samples import SMOL, job
from tests.unit.tunery.plan.test_exchange import base_of
from tunery.plan.fitting import PLANNED, fitted, memory_reason, unstreamed
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
