"""Quota and ledger are compared under the same months, and the first difference is told."""

from typing import Any

from schemas.job import RecordUsage
from schemas.units import HOUR_MS
from services.scheduler.app import JOBS
from tests.unit.services.scheduler.fold import Decider
from tunery.cli.replay.states import ledger_by_month, quota_by_month, unequal
from tunery.runtime.journal.fold import Fold
from tunery.runtime.journal.verify import Replay

NOVEMBER = 498_696 - 24 * 11  # some hour of November 2026
SLICES = ((NOVEMBER, 1_000), (NOVEMBER, -300), (NOVEMBER + 24 * 40, 50))


class Ledger:
    """A connection that has these rows."""

    def __init__(self, *rows: tuple[str, int, int]) -> None:
        self.rows = [dict(zip(("tenant", "hour", "gpu_ms"), row, strict=True)) for row in rows]

    async def fetch(self, query: str) -> Any:
        assert "billing.ledger" in query
        return self.rows


def counted() -> dict[tuple[str, str], int]:
    decider = Decider(JOBS, "acme", NOVEMBER * HOUR_MS)
    for hour, gpu_ms in SLICES:
        decider.given(RecordUsage(job_id="ftjob-1", attempt=1, hour=hour, gpu_ms=gpu_ms))
    return quota_by_month([Replay(0, Fold(decider.state), len(SLICES), 0)])


async def billed(*slices: tuple[int, int]) -> dict[tuple[str, str], int]:
    connection: Any = Ledger(*(("acme", hour, gpu_ms) for hour, gpu_ms in slices))
    return await ledger_by_month(connection)


async def test_the_same_slices_are_equal_month_by_month() -> None:
    assert counted() == {("acme", "2026-11"): 700, ("acme", "2026-12"): 50}
    assert unequal(counted(), await billed(*SLICES)) is None


async def test_the_first_month_that_differs_is_named() -> None:
    found = unequal(counted(), await billed(*SLICES[:2], (SLICES[2][0], 51)))
    assert found == "acme, 2026-12: quota 50 GPU-ms, ledger 51 GPU-ms"
