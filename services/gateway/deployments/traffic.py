"""Counts what the versions of a deployment answer, and sends it to the log every few seconds.

These are statistics: the counts of a gateway that is killed are lost. Tokens that may be billed are
counted by the engine.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from msgspec.structs import asdict, replace

from schemas.deployments import ArmRole, ArmTraffic, CountTraffic, Deployment, ServedStage
from schemas.records import build_from
from schemas.topics import MODEL
from schemas.units import Ms
from services.gateway.web.commands import CommandSender
from services.gateway.web.domain.errors import ApiError
from tunery.runtime.clock import Clock
from tunery.runtime.hosts.periodic import PeriodicHost
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.watchdog import beat

LOG: Final = logging.getLogger("tunery.gateway")
COUNTED_MAX: Final = 1_000  # deployments between two records; what is above is not counted
SHADOWS_MAX: Final = 8  # concurrent shadow questions, whose answers are dropped
TENANT_SHADOWS_MAX: Final = 2  # they take places from the tenant's own questions


class DeploymentPhase(NamedTuple):
    """The shares under which an answer was given."""

    tenant: str
    series: str
    stage: ServedStage
    salt: str
    phase: int


@dataclass
class PhaseCounts:
    """Counts of answers since the last record."""

    arms: dict[ArmRole, ArmTraffic] = field(default_factory=dict)
    buckets: set[int] = field(default_factory=set)  # buckets of the answered callers


class TrafficCounts(PeriodicHost):
    """Implements `Traffic`."""

    name = "traffic counts"
    every_ms: Ms = 5_000

    def __init__(self, commands: CommandSender, clock: Clock) -> None:
        super().__init__(clock)
        self._commands = commands
        self._counted: dict[DeploymentPhase, PhaseCounts] = {}
        self._shadows: dict[asyncio.Task[None], str] = {}

    def note(
        self, tenant: str, deployment: Deployment, answered: ArmTraffic, bucket: int | None
    ) -> None:
        """Add an answer, and the caller's bucket where the caller has seen it."""
        phase = DeploymentPhase(
            tenant, deployment.series, deployment.stage, deployment.salt, deployment.phase
        )
        if phase not in self._counted and len(self._counted) >= COUNTED_MAX:
            return
        counts = self._counted.setdefault(phase, PhaseCounts())
        known = counts.arms.get(answered.role)
        counts.arms[answered.role] = answered if known is None else _sum(known, answered)
        if bucket is not None:
            counts.buckets.add(bucket)

    def ask_aside(self, tenant: str, ask: Callable[[], Awaitable[None]]) -> bool:
        """Ask a question in the background and drop its answer; False: too many are running."""
        held = Counter(self._shadows.values())
        if held.total() >= SHADOWS_MAX or held[tenant] >= TENANT_SHADOWS_MAX:
            return False
        task = asyncio.ensure_future(ask())
        self._shadows[task] = tenant  # keeps it from being collected
        task.add_done_callback(self._shadows.pop)
        return True

    async def settle(self) -> None:
        """Wait for all questions that are asked aside."""
        await asyncio.gather(*self._shadows, return_exceptions=True)

    async def work(self) -> None:
        """Send all that is counted so far."""
        counted, self._counted = self._counted, {}
        for phase, counts in counted.items():
            beat("working")
            command = build_from(
                CountTraffic,
                phase,
                arms=tuple(counts.arms.values()),
                buckets=tuple(sorted(counts.buckets)),
            )
            try:
                await self._commands.decide(MODEL, phase.tenant, command)
            except ApiError as error:
                log_event(LOG, logging.WARNING, "traffic.not_counted", why=error.code)


def _sum(known: ArmTraffic, added: ArmTraffic) -> ArmTraffic:
    counts = {
        name: count + getattr(added, name)
        for name, count in asdict(known).items()
        if isinstance(count, int)
    }
    return replace(known, **counts)
