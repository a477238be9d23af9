"""What jobs that have succeeded teach about the time of the next one.

The estimate of a job is a formula of its tokens, its base model and its device. The median ratio of
actual to estimated time of such jobs corrects it and the hold, for training and evaluation each.
"""

from collections.abc import Iterable
from statistics import median_low
from typing import Final

from schemas.submission import JobSpec, Pace
from schemas.units import PPM, Ms
from services.gateway.jobs.tables import JOBS, JobRow
from services.gateway.ports import Views
from tunery.plan.durations import SAMPLES_MIN
from tunery.plan.estimate import estimate
from tunery.runtime.clock import Clock

JOBS_MAX: Final = 200  # the newest that are read
KEPT_MS: Final[Ms] = 60_000


class PastJobs:
    """The pace of the newest jobs of all tenants, which are read once a minute."""

    def __init__(self, views: Views, clock: Clock) -> None:
        self._views, self._clock = views, clock
        self._rows: tuple[JobRow, ...] = ()
        self._read_at: Ms | None = None

    async def pace(self, spec: JobSpec) -> Pace | None:
        """That of jobs like this one; None where there were too few."""
        now = self._clock.monotonic_ms()
        if self._read_at is None or now - self._read_at > KEPT_MS:
            self._read_at = now
            where = {"phase": "done", "outcome": "succeeded"}
            self._rows = tuple(await self._views.page(JOBS, where, limit=JOBS_MAX))
        return pace_of(self._rows, spec)


def pace_of(rows: Iterable[JobRow], spec: JobSpec) -> Pace | None:
    """The median ratios of the jobs on the same base model and kind of device that went through
    without a stop; None where there are fewer than SAMPLES_MIN.
    """
    paces = [
        pace
        for row in rows
        if (row.spec.base.base_id, row.spec.device) == (spec.base.base_id, spec.device)
        and (pace := _pace(row)) is not None
    ]
    if len(paces) < SAMPLES_MIN:
        return None
    return Pace(
        train_ppm=median_low(pace.train_ppm for pace in paces),
        eval_ppm=median_low(pace.eval_ppm for pace in paces),
    )


def _pace(row: JobRow) -> Pace | None:
    """By the formula of today, as what was estimated then may have come from another one."""
    if row.hold is None or row.train_gpu_ms is None or row.billable_gpu_ms is None:
        return None
    if row.attempt != 2 or row.lost_gpu_ms:  # one training and one evaluation
        return None
    needs = estimate(row.spec, row.hold.tokens)
    return Pace(
        train_ppm=PPM * row.train_gpu_ms // max(1, needs.train_gpu_ms),
        eval_ppm=PPM * (row.billable_gpu_ms - row.train_gpu_ms) // max(1, needs.eval_gpu_ms),
    )
