"""The simulator's check of sweeps finds jobs that must not exist, and sweeps that are stuck."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas.anomaly import Anomaly, AnomalyRecorded
from schemas.erasure import JobsClosed, JobsErased
from schemas.job import JobSubmitted, LimitsSet
from schemas.sweep import SweepEnded, SweepRun, SweepSubmitted, SweepTerms
from simulator.control_plane.quota_books import Quota
from simulator.control_plane.samples import HYPER, T0, limits, spec, tokens
from simulator.control_plane.sweep_books import SweepBooks

RUNS = tuple((SweepRun(job_id=f"ftjob-{n}", model_id=f"m-{n}", hyper=HYPER),) for n in (1, 2))
TERMS = SweepTerms(sweep_id="s", method="grid", spec=spec(), trials=RUNS, tokens=tokens())
PLAN = LimitsSet(terms=limits().terms)
SUBMITTED = SweepSubmitted(terms=TERMS)
ENDED = SweepEnded(sweep_id="s", outcome="completed", best_job_id=None)
ANOMALY = AnomalyRecorded(
    job_id="ftjob-1",
    anomaly=Anomaly(kind="stuck", attempt=1, window=1, measured_ppm=2, usual_ppm=1),
)


def job(number: int, sweep_id: str | None = "s") -> JobSubmitted:
    asked = replace(spec(), sweep_id=sweep_id)
    return JobSubmitted(
        job_id=f"ftjob-{number}", spec=asked, lane="standard", price_version="2026-11"
    )


def violated(*decisions: tuple[Any, ...]) -> list[str]:
    quota = Quota()
    books = SweepBooks(quota)
    for events in decisions:
        quota.enter("acme", None, events, T0)
        books.enter("acme", None, events, T0)
    return [violation.partition(":")[0] for violation in books.violations]


def test_a_sweep_that_goes_on_is_no_violation() -> None:
    assert violated((PLAN,), (SUBMITTED, job(1)), (ANOMALY,)) == []


@pytest.mark.parametrize(
    ("invariant", "decisions"),
    [
        ("stuck", ((PLAN,), (SUBMITTED,))),
        ("sweep", ((PLAN,), (SUBMITTED, job(1), job(2)))),
        ("sweep", ((PLAN,), (SUBMITTED, job(1), job(1)))),
        ("sweep", ((PLAN,), (SUBMITTED, job(1)), (ENDED,))),
        ("anomaly", ((ANOMALY,), (ANOMALY,))),
        ("erasure", ((PLAN,), (JobsClosed(),), (job(9, None),))),
        ("erasure", ((PLAN,), (job(9, None),), (JobsClosed(), JobsErased()))),
    ],
)
def test_review2_w1_what_contradicts_the_books_is_found(
    invariant: str, decisions: tuple[tuple[Any, ...], ...]
) -> None:
    assert invariant in violated(*decisions)
