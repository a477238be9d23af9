"""`bench.core --quick` runs and prints every figure; the figures themselves mean nothing."""

import asyncio
import json
import sys

import pytest

GOALS = {
    "append_read_back_p50_ratio",
    "pipelined_ratio",
    "replay_events_per_s",
    "replay_job_events_per_s",
    "ledger_events_per_s",
    "ledger_ratio_to_bare",
    "decisions_per_s",
    "confluent_append_ratio",
    "confluent_pipelined_ratio",
    "confluent_decisions_ratio",
    "sampled_lost_percent",
    "traced_lost_percent",
    "owner_rss_mb",
    "boot_1m_from_snapshot_s",
    "boot_1m_from_zero_s",
    "secured_append_p50_ratio",
    "secured_pipelined_ratio",
    "secured_connect_p50_ms",
}
WAIT_S = 480


@pytest.mark.soak  # make figures runs it at full size
async def test_the_last_line_has_every_figure() -> None:
    arguments = ("-m", "bench.core", "--quick", "--json")
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(WAIT_S):
        answer, _ = await process.communicate()
    assert process.returncode == 0
    figures = json.loads(answer.splitlines()[-1])
    assert set(figures) == GOALS
    near_zero = figures.pop("sampled_lost_percent")  # few decisions: less than their noise
    assert near_zero < 100
    assert all(value > 0 for value in figures.values())
