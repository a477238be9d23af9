"""Places that tenants share: who holds the fewest gets the next one."""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator


class FairPlaces:
    """Semaphore that is fair between tenants.

    A free place goes to the waiting tenant that has the fewest; tasks of one tenant get theirs in
    the order in which they came.

    of_tenant_max: places that one tenant may have at once, so that some are left for others; None:
      all of them.
    """

    def __init__(self, at_once_max: int, of_tenant_max: int | None = None) -> None:
        self._free = at_once_max
        self._of_tenant_max = at_once_max if of_tenant_max is None else of_tenant_max
        self._held = Counter[str]()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @contextlib.asynccontextmanager
    async def take(self, tenant: str) -> AsyncIterator[None]:
        """Hold a place until the end of the context."""
        if self._free and self._held[tenant] < self._of_tenant_max:
            self._free -= 1
            self._held[tenant] += 1
        else:
            await self._wait(tenant)
        try:
            yield
        finally:
            self._give_back(tenant)

    async def _wait(self, tenant: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it has the place already
                self._give_back(tenant)
            raise

    def _give_back(self, tenant: str) -> None:
        """Give the place to the waiting tenant that has the fewest, or mark it free."""
        self._held[tenant] -= 1
        if not self._held[tenant]:
            del self._held[tenant]
        while self._waiting:
            tenant = min(self._waiting, key=lambda name: self._held[name])
            if self._held[tenant] >= self._of_tenant_max:
                break
            turns = self._waiting[tenant]
            turn = turns.popleft()
            if turns:  # its next one comes after the first of others
                self._waiting[tenant] = self._waiting.pop(tenant)
            else:
                del self._waiting[tenant]
            if not turn.done():
                self._held[tenant] += 1
                turn.set_result(None)
                return
        self._free += 1
