"""Rows and steps of an epoch before a file is packed."""

import pytest
from msgspec.structs import replace

from schemas.dataset import PackPlan
from tests.unit.tunery.plan.samples import SMOL, job, tokens
from tunery.plan.estimate import estimate
from tunery.plan.hyperparameters import resolve
from tunery.plan.packing import packed

PLANS = (
    PackPlan(max_length=256, validation_fraction_ppm=0, packed_rows=87, tokens=19_334),
    PackPlan(max_length=256, validation_fraction_ppm=50_000, packed_rows=82, tokens=18_373),
)


@pytest.mark.parametrize(
    ("length", "fraction_ppm", "rows", "count"),
    [
        (256, 50_000, 82, 18_373),  # as the check found it
        (256, 0, 87, 19_334),
        (256, 200_000, 70, 15_468),  # a share of the whole
        (300, 0, 65, 19_334),  # nothing known of this length
    ],
)
def test_steps_follow_the_rows_as_they_will_be_packed(
    length: int, fraction_ppm: int, rows: int, count: int
) -> None:
    known = replace(tokens(19_334), plans=PLANS)
    plan = packed(known, length, fraction_ppm)
    assert (plan.packed_rows, plan.tokens) == (rows, count)
    requested = {"max_length": length, "n_epochs": 2, "batch_size": 4}
    hyper, _ = resolve(requested, SMOL, known, 1, "cpu", fraction_ppm)
    needs = estimate(job(hyper, validation_fraction_ppm=fraction_ppm), known)
    assert (needs.steps, needs.tokens) == (2 * -(-rows // 4), 2 * count)
