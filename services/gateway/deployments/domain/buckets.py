"""Split of callers between the two versions of a deployment, and a test of that split. Pure."""

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from schemas.deployments import BUCKETS, ArmTraffic, Deployment

DIGITS: Final = 16  # 8 bytes: the remainder is even to one part in 10¹⁵
MISMATCH_P: Final = 0.001
EXPECTED_MIN: Final = 5  # callers of each version, below which the test says nothing


class SampleRatio(NamedTuple):
    """Callers of both versions, and how many their shares let expect."""

    first: int
    second: int
    expected_second: float
    # p-value of so large a difference, where nothing is wrong; None: too few callers
    p: float | None

    @property
    def mismatch(self) -> bool:
        """True if the split of callers is so improbable that answers must be missing."""
        return self.p is not None and self.p < MISMATCH_P


def bucket_of(digest: str) -> int:
    """Return the bucket of a caller. digest: a keyed hash, so that callers cannot choose it."""
    return int(digest[:DIGITS], 16) % BUCKETS


def is_second(deployment: Deployment, bucket: int) -> bool:
    """Return whether the second version answers a bucket. A larger share only adds buckets."""
    return deployment.second is not None and bucket < deployment.second.buckets


def sample_ratio(deployment: Deployment, traffic: tuple[ArmTraffic, ...]) -> SampleRatio | None:
    """Return Pearson's chi-square test of the answered callers, with one degree of freedom.

    Callers are counted and not questions, of which one caller may ask many at once. A question that
    failed is not counted, so a version that fails shows as too few callers. None: there is one
    version.
    """
    if deployment.second is None:
        return None
    subjects: Mapping[str, int] = {arm.role: arm.subjects for arm in traffic}
    first, second = subjects.get("first", 0), subjects.get("second", 0)
    share = deployment.second.buckets / BUCKETS
    expected = (first + second) * share
    other = first + second - expected
    if min(expected, other) < EXPECTED_MIN:
        return SampleRatio(first, second, expected, None)
    squares = (second - expected) ** 2 / expected + (first - other) ** 2 / other
    return SampleRatio(first, second, expected, math.erfc(math.sqrt(squares / 2)))
