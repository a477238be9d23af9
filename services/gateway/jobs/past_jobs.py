"""Estimated times corrected by those of jobs that have succeeded.

The estimate of a job is a formula of its tokens, its base model and its device. The median ratio of
actual to estimated time of jobs like it corrects it and the hold, for training and evaluation each.
Jobs are like it that the formula expects to take about as long: of short ones the start of the
process is most, of long ones the tokens.
"""

from collections.abc import Iterable, Sequence
from heapq import nsmallest
from math import log
from statistics import median_low
from typing import Final, NamedTuple

from schemas.dataset import BaseTokens
from schemas.submission import JobSpec, Pace
from schemas.training import Device
from schemas.units import PPM, GpuMs, Ms
from services.gateway.views.ports import Views
from services.gateway.views.tables.jobs import JOBS, JobRow
from tunery.plan.durations import SAMPLES_MIN
from tunery.plan.estimate import estimate
from tunery.runtime.clock import Clock

JOBS_MAX: Final = 200  # the newest that are read
KEPT_MS: Final[Ms] = 10_000
# Three jobs on the same base model teach more than eight on others: of two bases in
# `bench.estimates` one trained at half of the formula's speed, the other at a fifth.
SAME_BASE_MIN: Final = 3


class PastJob(NamedTuple):
    """Durations of a past job, in millionths of what the current formula predicts; the estimate of
    that time may come from an earlier formula.
    """

    base_id: str
    device: Device
    train_expected_ms: GpuMs
    eval_expected_ms: GpuMs
    train_ppm: int
    eval_ppm: int


def past_jobs_of(rows: Iterable[JobRow]) -> tuple[PastJob, ...]:
    """Return the durations of jobs that succeeded without interruption."""
    return tuple(job for row in rows if (job := _past_job(row)) is not None)


def _past_job(row: JobRow) -> PastJob | None:
    if row.hold is None or row.train_gpu_ms is None or row.eval_gpu_ms is None:
        return None
    if row.attempt != 2 or row.lost_gpu_ms:  # one training and one evaluation
        return None
    needs = estimate(row.spec, row.hold.tokens)
    return PastJob(
        base_id=row.spec.base.base_id,
        device=row.spec.device,
        train_expected_ms=needs.train_gpu_ms,
        eval_expected_ms=needs.eval_gpu_ms,
        train_ppm=PPM * row.train_gpu_ms // max(1, needs.train_gpu_ms),
        eval_ppm=PPM * row.eval_gpu_ms // max(1, needs.eval_gpu_ms),
    )


class PastJobs:
    """The pace of the newest jobs of all tenants, which are read once in KEPT_MS."""

    def __init__(self, views: Views, clock: Clock) -> None:
        self._views, self._clock = views, clock
        self._jobs: tuple[PastJob, ...] = ()
        self._read_at: Ms | None = None

    async def pace(self, spec: JobSpec, tokens: BaseTokens | None) -> Pace | None:
        """Return the pace of jobs like this one; None if too few have ended. tokens: None: not
        known.
        """
        now = self._clock.monotonic_ms()
        if self._read_at is None or now - self._read_at > KEPT_MS:
            self._read_at = now
            where = {"phase": "done", "outcome": "succeeded"}
            self._jobs = past_jobs_of(await self._views.page(JOBS, where, limit=JOBS_MAX))
        return pace_of(self._jobs, spec, tokens)


def pace_of(jobs: Iterable[PastJob], spec: JobSpec, tokens: BaseTokens | None) -> Pace | None:
    """The median ratios of the jobs most like this one; None where SAMPLES_MIN are not known.

    tokens: tokens of its file; None: not known, so all jobs are like it. Jobs on the same base
    model count where there are SAME_BASE_MIN of them, else jobs on any, as all of them ran on the
    same pool.
    """
    known = [job for job in jobs if job.device == spec.device]
    if len(known) < SAMPLES_MIN:
        return None
    same = [job for job in known if job.base_id == spec.base.base_id]
    known = same if len(same) >= SAME_BASE_MIN else known
    if tokens is None:
        return Pace(
            train_ppm=median_low(job.train_ppm for job in known),
            eval_ppm=median_low(job.eval_ppm for job in known),
        )
    needs = estimate(spec, tokens)
    return Pace(
        train_ppm=_median_of_nearest(
            needs.train_gpu_ms, [(job.train_expected_ms, job.train_ppm) for job in known]
        ),
        eval_ppm=_median_of_nearest(
            needs.eval_gpu_ms, [(job.eval_expected_ms, job.eval_ppm) for job in known]
        ),
    )


def _median_of_nearest(expected_ms: GpuMs, known: Sequence[tuple[GpuMs, int]]) -> int:
    """The median ratio of the half of the jobs whose size is nearest, of SAMPLES_MIN at most.

    known: what the formula expected of each job, and its ratio.
    """

    def distance(job: tuple[GpuMs, int]) -> float:
        return abs(log(max(1, job[0]) / max(1, expected_ms)))

    count = min(SAMPLES_MIN, max(SAME_BASE_MIN, len(known) // 2))
    return median_low(ratio for _, ratio in nsmallest(count, known, key=distance))
