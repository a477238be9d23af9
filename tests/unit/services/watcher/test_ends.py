"""Ends of attempts leave the journal of `job` for the topic that the watcher's processes read."""

import asyncio
from typing import Final

import msgspec
import pytest
from prometheus_client import REGISTRY

from schemas.anomaly import Anomaly, RecordAnomaly
from schemas.topics import ENDS, JOB
from services.scheduler.app import JOBS
from services.watcher.domain.watch import AttemptOver
from services.watcher.ends import EndsHost
from services.watcher.watching import FORGOTTEN_MS
from tests.unit.services.scheduler.lives import JOB_ID, LIVES, TENANT, closed
from tunery.platform.memory_servers import memory_servers
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.clock import SystemClock
from tunery.runtime.hosts.aggregate import AggregateHost

ANOMALY: Final = Anomaly(kind="gpu_idle", attempt=1, window=0, measured_ppm=0, usual_ppm=0)


class Later(SystemClock):
    """Clock of a process that starts `later_ms` after the records were written."""

    late_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.late_ms


@pytest.mark.parametrize(("late_ms", "sent"), [(0, 1), (FORGOTTEN_MS + 60_000, 0)])
async def test_first_hour2_u25_the_end_of_an_attempt_is_sent_to_its_watch(
    late_ms: int, sent: int
) -> None:
    servers = await memory_servers(Later())
    scheduler, watcher = servers.runtime("scheduler"), servers.runtime("watcher")
    owner = asyncio.create_task(AggregateHost(scheduler, JOBS).run())
    anomaly = RecordAnomaly(job_id=JOB_ID, anomaly=ANOMALY)
    for body in (*LIVES["running"], anomaly, closed()):
        await scheduler.sender.send(JOB, TENANT, TENANT, body)
    before = _recorded()
    Later.late_ms = late_ms
    following = asyncio.create_task(EndsHost(watcher).run())
    key = JOB_ID.encode()
    try:
        async with asyncio.timeout(180):
            reader = await watcher.log.reader(ENDS.name, {partition_of(key): 0})
            records = await reader.poll(5_000 if sent else 300, 10)
    finally:
        Later.late_ms = 0
        for task in (owner, following):
            task.cancel()
        await asyncio.wait((owner, following))
    assert [msgspec.json.decode(r.value, type=AttemptOver) for r in records] == [
        AttemptOver(TENANT, JOB_ID, 1)
    ] * sent
    assert _recorded() - before == sent  # counted where it is recorded, not where it is sent


def _recorded() -> float:
    return REGISTRY.get_sample_value("tunery_anomalies_total", {"kind": "gpu_idle"}) or 0.0
