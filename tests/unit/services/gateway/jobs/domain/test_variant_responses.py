"""Configurations that take turns in one job: what each tries, and what came of it."""

from msgspec.structs import replace

from schemas.submission import Variant
from services.gateway.jobs.domain.variant_responses import (
    differing_values,
    loss_of,
    variant_responses,
)
from services.gateway.views.tables.jobs import JobRow
from tests.unit.services.gateway.jobs.test_configuration import row as job_row
from tests.unit.services.scheduler.domain.job.test_sweeps import sweep

RUNS = [runs[0] for runs in sweep(3, colocate=3).terms.trials]


def in_turns(**changes: object) -> JobRow:
    row = job_row("ftjob-0-0", **changes)
    variants = tuple(Variant(run_id=run.job_id, hyper=run.hyper) for run in RUNS)
    return replace(row, spec=replace(row.spec, variants=variants))


def test_a_job_says_what_each_configuration_tries_and_which_one_it_has_left() -> None:
    waiting = variant_responses(in_turns())
    assert [own.values for own in waiting] == [{"rank": 2}, {"rank": 3}, {"rank": 4}]
    assert not any(own.chosen or own.validation_loss for own in waiting)
    ended = variant_responses(in_turns(variant=2, losses_ppm=(None, 400_000, 300_000)))
    assert [(own.variant, own.validation_loss, own.chosen) for own in ended] == [
        (0, None, False),
        (1, 0.4, False),
        (2, 0.3, True),
    ]


def test_a_job_with_one_configuration_has_none_beside() -> None:
    assert variant_responses(job_row("ftjob-1")) == []


def test_values_are_those_that_differ() -> None:
    same = RUNS[0].hyper
    assert differing_values([same, same]) == [{}, {}]
    assert differing_values([]) == []


def test_a_loss_that_was_not_finite_is_none() -> None:
    assert (loss_of(-1), loss_of(None), loss_of(1_500_000)) == (None, None, 1.5)
