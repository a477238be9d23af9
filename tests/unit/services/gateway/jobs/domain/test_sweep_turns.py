"""Configurations that cannot take turns in one job are refused, with the field and what to do."""

from typing import Any

import pytest
from msgspec.structs import replace

from services.gateway.jobs.domain.resolve import Resolved
from services.gateway.jobs.domain.sweep_turns import check_turns
from services.gateway.web.domain.errors import ApiError
from simulator.control_plane.samples import spec, tokens
from tunery.plan.memory import memory_of_variants

SPEC = spec()


def resolved(memory_max: int | None = None, **changes: Any) -> Resolved:
    return Resolved(replace(SPEC, **changes), tokens(), memory_max)


def of_hyper(**changes: Any) -> Resolved:
    return resolved(hyper=replace(SPEC.hyper, **changes))


def refused(every: list[Resolved], colocate: int = 2) -> ApiError:
    with pytest.raises(ApiError) as error:
        check_turns(every, colocate)
    assert error.value.status == 400
    return error.value


def test_other_ranks_rates_seeds_and_lengths_of_training_take_turns() -> None:
    check_turns([of_hyper(), of_hyper(rank=99, seed=5, learning_rate_ppb=1, n_epochs=9)], 2)


@pytest.mark.parametrize(
    ("other", "param", "fix"),
    [
        (of_hyper(adaptation="qlora"), "job.training.adaptation", "set it to 'lora'"),
        (of_hyper(engine="fsdp2"), "job.training.engine", "set it to 'single'"),
        (of_hyper(max_length=77), "parameters.max_length", "try one sweep for each"),
        (of_hyper(precision="bf16"), "parameters.precision", "try one sweep for each"),
        (of_hyper(method="dpo"), "parameters.method", "try one sweep for each"),
    ],
)
def test_what_shares_no_base_or_no_rows_is_refused(other: Resolved, param: str, fix: str) -> None:
    error = refused([of_hyper(), other])
    assert error.param == param
    assert f"{fix}, or leave colocate out" in error.message


def test_a_job_with_several_slots_or_answers_that_are_graded_is_refused() -> None:
    assert refused([resolved(slots=2)]).param == "job.training.slots"
    assert refused([of_hyper(method="reinforcement")]).param == "job.method.type"


def test_as_many_as_fit_into_the_memory_of_a_node_take_turns() -> None:
    def needed(count: int) -> int:
        return memory_of_variants(SPEC.base, [SPEC.hyper] * count, SPEC.device, tokens())

    most = needed(3)
    check_turns([resolved(most)] * 3, 8)
    error = refused([resolved(most)] * 4, 4)
    assert error.param == "colocate"
    assert error.message.startswith("4 of these configurations in one process need about")
    assert error.message.endswith("set colocate to 3")
