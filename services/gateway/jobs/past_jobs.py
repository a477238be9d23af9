"""What jobs that have succeeded teach about the time of the next one.

The estimate of a job is a formula of its tokens, its base model and its device. The median ratio of
actual to estimated time of such jobs corrects it, for training and evaluation each.
"""

from collections.abc import Iterable
from statistics import median_low
from typing import Final, NamedTuple

from schemas.submission import Estimate, JobSpec
from schemas.units import PPM, Ms
from services.gateway.jobs.tables import JOBS, JobRow
from services.gateway.ports import Views
from tunery.plan.durations import SAMPLES_MIN
from tunery.plan.estimate import corrected, estimate
from tunery.runtime.clock import Clock

JOBS_MAX: Final = 200  # the newest that are read
KEPT_MS: Final[Ms] = 60_000


class Correction(NamedTuple):
    """Actual by estimated time in millionths: of trainings and of evaluations."""

    train_ppm: int = PPM
    eval_ppm: int = PPM


class PastJobs:
    """Corrects estimates by the newest jobs of all tenants, which are read once a minute."""

    def __init__(self, views: Views, clock: Clock) -> None:
        self._views, self._clock = views, clock
        self._rows: tuple[JobRow, ...] = ()
        self._read_at: Ms | None = None

    async def corrected(self, spec: JobSpec, needs: Estimate) -> Estimate:
        """The estimate of a job, by what such jobs took; as it is where there were too few."""
        now = self._clock.monotonic_ms()
        if self._read_at is None or now - self._read_at > KEPT_MS:
            self._read_at = now
            where = {"phase": "done", "outcome": "succeeded"}
            self._rows = tuple(await self._views.page(JOBS, where, limit=JOBS_MAX))
        return corrected(spec, needs, *ratios_of(self._rows, spec))


def ratios_of(rows: Iterable[JobRow], spec: JobSpec) -> Correction:
    """The median ratios of the jobs on the same base model and kind of device that went through
    without a stop; those of the formula where there are fewer than SAMPLES_MIN.
    """
    ratios = [
        ratio
        for row in rows
        if (row.spec.base.base_id, row.spec.device) == (spec.base.base_id, spec.device)
        and (ratio := _ratios(row)) is not None
    ]
    if len(ratios) < SAMPLES_MIN:
        return Correction()
    return Correction(
        median_low(ratio.train_ppm for ratio in ratios),
        median_low(ratio.eval_ppm for ratio in ratios),
    )


def _ratios(row: JobRow) -> Correction | None:
    """By the formula of today, as what was estimated then may have come from another one."""
    if row.hold is None or row.train_gpu_ms is None or row.billable_gpu_ms is None:
        return None
    if row.attempt != 2 or row.lost_gpu_ms:  # one training and one evaluation
        return None
    needs = estimate(row.spec, row.hold.tokens)
    return Correction(
        PPM * row.train_gpu_ms // max(1, needs.train_gpu_ms),
        PPM * (row.billable_gpu_ms - row.train_gpu_ms) // max(1, needs.eval_gpu_ms),
    )
