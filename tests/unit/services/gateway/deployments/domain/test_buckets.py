"""Buckets of callers, and the test of the sample ratio."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.deployments import BUCKETS, Arm, ArmTraffic, Deployment
from services.gateway.deployments.domain.buckets import (
    MISMATCH_P,
    bucket_of,
    is_second,
    sample_ratio,
)


def deployment(buckets: int | None) -> Deployment:
    second = None if buckets is None else Arm(model_id="b", buckets=buckets)
    return Deployment(series="s", stage="production", model_id="a", second=second)


def ratio_p(first: int, second: int, buckets: int) -> float | None:
    traffic = (
        ArmTraffic(model_id="a", role="first", subjects=first),
        ArmTraffic(model_id="b", role="second", subjects=second),
    )
    ratio = sample_ratio(deployment(buckets), traffic)
    assert ratio is not None
    assert ratio.mismatch == (ratio.p is not None and ratio.p < MISMATCH_P)
    return ratio.p


@given(st.integers(0, BUCKETS - 1), st.integers(1, BUCKETS - 1), st.integers(1, BUCKETS - 1))
def test_a_larger_share_moves_no_caller_back(bucket: int, share: int, other: int) -> None:
    less, more = sorted((share, other))
    if is_second(deployment(less), bucket):
        assert is_second(deployment(more), bucket)
    assert not is_second(deployment(None), bucket)


def test_shares_of_many_callers_are_those_of_the_buckets() -> None:
    callers = (sha256(str(number).encode()).hexdigest() for number in range(20_000))
    second = sum(is_second(deployment(1_000), bucket_of(caller)) for caller in callers)
    assert abs(second - 2_000) < 200  # 4.7 standard deviations


@pytest.mark.parametrize(
    ("first", "second", "buckets", "p"),
    [
        (500, 500, 5_000, 1.0),
        (50, 50, 5_000, 1.0),
        # scipy.stats.chisquare([550, 450]).pvalue, and ([9_100, 900], [9_000, 1_000])
        (550, 450, 5_000, 0.0015654022580025497),
        (9_100, 900, 1_000, 0.0008581206663676031),
    ],
)
def test_p_is_that_of_the_chi_square_test(first: int, second: int, buckets: int, p: float) -> None:
    assert ratio_p(first, second, buckets) == pytest.approx(p, rel=1e-9)


def test_few_callers_say_nothing_and_one_version_has_no_ratio() -> None:
    assert ratio_p(40, 0, 1_000) is None
    assert sample_ratio(deployment(None), ()) is None
