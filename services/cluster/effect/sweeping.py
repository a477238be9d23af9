"""Remove this agent's JobSets without a lease: of an earlier incarnation, or from a backup."""

import logging
from typing import Final

from schemas.units import Ms
from services.cluster.ports import ClusterClient, ClusterRefused, ClusterUnavailable, PodServer
from tunery.runtime.clock import Clock
from tunery.runtime.hosts.abstract import HostStopped
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.watchdog import beat

ROUNDS_MAX: Final = 300
PAUSE_MS: Final[Ms] = 1_000
WATCH_MS: Final[Ms] = 30_000
LOG: Final = logging.getLogger(__name__)


class NodeNameTaken(HostStopped):
    """Leases of another agent run under this node's name, such as of another installation."""


class Sweeper:
    """Implements `OrphanSweeper` for the node agent.

    What it finds on the node of its flavor is of agents that are no more: it is called before there
    is a lease.
    """

    def __init__(self, cluster: ClusterClient, clock: Clock, agent_url: str, flavor: str) -> None:
        self._cluster, self._clock = cluster, clock
        self._agent_url, self._flavor = agent_url, flavor

    async def sweep(self) -> int:
        """Delete them, and wait until no pod is left; how many there were.

        Raises NodeNameTaken, TimeoutError.
        """
        orphans: set[str] = set()
        for _ in range(ROUNDS_MAX):
            seen = await self._cluster.look()
            left = {name: each for name, each in seen.items() if each.flavor == self._flavor}
            if not left:
                return len(orphans)
            for name, objects in left.items():
                if objects.agent_url not in (None, self._agent_url):
                    raise NodeNameTaken(
                        f"JobSet {name} in the namespace of leases is of another agent with this "
                        f"node's name, at {objects.agent_url}: give each installation's nodes "
                        "names of their own (TUNERY_NODE_ID) or another namespace; if that agent "
                        "is no more, delete its JobSets"
                    )
            orphans |= left.keys()
            for name in left:
                await self._cluster.delete(name, grace_s=0)
            await self._clock.sleep(PAUSE_MS)
        raise TimeoutError(f"JobSets of an earlier agent do not go away: {sorted(left)}")


class OrphanWatch:
    """Host that deletes JobSets of ended leases, which come back with a backup of etcd."""

    name = "orphans"

    def __init__(
        self, cluster: ClusterClient, server: PodServer, clock: Clock, agent_url: str
    ) -> None:
        self._cluster, self._server = cluster, server
        self._clock, self._agent_url = clock, agent_url

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            beat("waiting")
            await self._clock.sleep(WATCH_MS)
            try:
                await self.sweep()
            except (ClusterUnavailable, ClusterRefused) as error:
                log_event(LOG, logging.WARNING, "orphans.not_swept", why=error)

    async def ready(self) -> None:
        """Return at once: there is nothing to prepare."""

    async def sweep(self) -> int:
        """Delete JobSets without an active lease, and return their number."""
        orphans = [
            name
            for name, objects in (await self._cluster.look()).items()
            if objects.agent_url == self._agent_url and not self._server.answers(name)
        ]
        for name in orphans:
            log_event(LOG, logging.WARNING, "orphan.deleted", jobset=name)
            await self._cluster.delete(name)
        return len(orphans)
