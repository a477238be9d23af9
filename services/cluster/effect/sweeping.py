"""Removes the JobSets of an earlier incarnation of this agent, before the node registers."""

from typing import Final

from services.cluster.ports import ClusterClient
from tunery.runtime.clock import Clock

ROUNDS_MAX: Final = 300
PAUSE_MS: Final = 1_000


class Sweeper:
    """Implements `OrphanSweeper` for the node agent.

    What it finds is of agents that are no more: it is called before there is a lease.
    """

    def __init__(self, cluster: ClusterClient, clock: Clock) -> None:
        self._cluster, self._clock = cluster, clock

    async def sweep(self) -> int:
        """Delete them, and wait until no pod is left; how many there were. Raises TimeoutError."""
        orphans: set[str] = set()
        for _ in range(ROUNDS_MAX):
            left = await self._cluster.look()
            if not left:
                return len(orphans)
            orphans |= left.keys()
            for name in left:
                await self._cluster.delete(name, grace_s=0)
            await self._clock.sleep(PAUSE_MS)
        raise TimeoutError(f"JobSets of an earlier agent do not go away: {sorted(left)}")
