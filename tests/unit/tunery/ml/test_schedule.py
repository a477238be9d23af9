from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunery.ml.schedule import rate_factor
from tunery.work.spec import Scheduler

SCHEDULERS: tuple[Scheduler, ...] = get_args(Scheduler)


def test_warm_up_climbs_in_equal_parts_and_the_rest_runs_down() -> None:
    factors = [rate_factor("linear", step, warmup=2, total=6) for step in range(7)]
    assert factors == pytest.approx([1 / 3, 2 / 3, 1, 3 / 4, 1 / 2, 1 / 4, 0])
    cosine = [rate_factor("cosine", step, warmup=0, total=4) for step in range(5)]
    assert cosine == pytest.approx([1, 0.853553, 0.5, 0.146447, 0], abs=1e-6)
    wsd = [rate_factor("wsd", step, warmup=1, total=20) for step in (0, 1, 17, 18, 19, 20)]
    assert wsd == pytest.approx([1 / 2, 1, 1, 1, 1 / 2, 0])
    assert {rate_factor("constant", step, warmup=0, total=4) for step in range(5)} == {1.0}


@given(
    scheduler=st.sampled_from(SCHEDULERS),
    total=st.integers(1, 500),
    share=st.floats(0, 0.9),
    at=st.floats(0, 1, exclude_max=True),
)
def test_no_step_has_a_learning_rate_of_zero(
    scheduler: Scheduler, total: int, share: float, at: float
) -> None:
    assert (
        0 < rate_factor(scheduler, int(at * total), warmup=round(share * total), total=total) <= 1
    )
