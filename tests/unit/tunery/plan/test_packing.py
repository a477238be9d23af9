"""Rows and steps of an epoch before a file is packed."""

import pytest
from msgspec.structs import replace

from schemas.dataset import PackPlan
from schemas.submission import MixtureFile
from tests.unit.tunery.plan.samples import SMOL, job, tokens
from tunery.plan.estimate import estimate
from tunery.plan.hyperparameters import resolve
from tunery.plan.packing import mixed, packed

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


def test_mixture_tokens_and_rows_are_those_of_all_files_by_their_weights() -> None:
    main = replace(tokens(1_000, longest=50), plans=PLANS)
    further = replace(tokens(400, longest=90), plans=PLANS[:1])
    file = MixtureFile(file_id="file-2", weight_ppm=2_500_000, sha256="b" * 64, tokens=further)
    both = mixed(main, (file,))
    assert (both.tokens, both.trainable_tokens, both.longest_row_tokens) == (2_000, 1_000, 90)
    assert both.plans == (
        PackPlan(
            max_length=256,
            validation_fraction_ppm=0,
            packed_rows=87 + 218,
            tokens=19_334 + 48_335,
        ),
    )
    seldom = replace(file, weight_ppm=1_000)
    assert mixed(main, (seldom,)).plans[0].packed_rows == 88
    assert mixed(main, ()) is main


def test_mixture_the_estimate_is_that_of_all_files() -> None:
    main, further = tokens(10_000), tokens(5_000)
    hyper, _ = resolve({"max_length": 256, "n_epochs": 1, "batch_size": 1}, SMOL, main, 1)
    file = MixtureFile(file_id="file-2", weight_ppm=2_000_000, sha256="b" * 64, tokens=further)
    spec = job(hyper, mixture=(file,))
    assert estimate(spec, main) == estimate(job(hyper), tokens(20_000))
