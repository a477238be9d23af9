"""Brings ends of attempts, which `job` decides, to the process that watches their job.

Telemetry cannot tell an attempt that has ended from one that hangs: both are silent. Journals are
keyed by tenant and watches by job, so an end goes through a topic that is keyed by job.
"""

from collections.abc import Sequence
from functools import partial

import msgspec

from schemas.anomaly import AnomalyRecorded
from schemas.job import AttemptEnded
from schemas.topics import ENDS, JOB
from services.watcher.domain.watch import AttemptOver
from services.watcher.metrics import ANOMALIES
from services.watcher.watching import FORGOTTEN_MS, RETRIES, UNREACHABLE
from tunery.platform.ports import Runtime
from tunery.runtime.backoff import retry
from tunery.runtime.hosts.reactor import JournalFollower
from tunery.runtime.journal.reader import Accepted


class EndsHost(JournalFollower):
    """Follows `job`: sends ends of attempts to their watches, and counts recorded anomalies."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime, JOB)

    async def take(self, batch: Sequence[Accepted]) -> None:
        """Send what is younger than what is watched: the first process begins with a year of it."""
        for accepted in batch:
            await self._take_one(accepted)

    async def _take_one(self, accepted: Accepted) -> None:
        if self._clock.now_ms() - accepted.header.at > FORGOTTEN_MS:
            return
        for event in accepted.events:
            if isinstance(event, AnomalyRecorded):
                ANOMALIES.labels(event.anomaly.kind).inc()
            elif isinstance(event, AttemptEnded):
                over = AttemptOver(accepted.entry.tenant, event.job_id, event.attempt)
                key, value = event.job_id.encode(), msgspec.json.encode(over)
                send = partial(self._log.send, ENDS.name, key, value)
                await retry(send, UNREACHABLE, clock=self._clock, backoff=RETRIES)
