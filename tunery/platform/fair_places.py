"""Semaphore that is fair between tenants: the one that holds the fewest places is next."""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator


class FairPlaces:
    """Semaphore that is fair between tenants.

    A free place goes to the waiting tenant that has the fewest; tasks of one tenant get theirs in
    the order in which they came. Tasks of low priority come after all others, and leave one place
    free where there are several.

    of_tenant_max: places that one tenant may have at once, so that some are left for others; None:
      all of them.
    """

    def __init__(self, at_once_max: int, of_tenant_max: int | None = None) -> None:
        self._free = at_once_max
        self._of_tenant_max = at_once_max if of_tenant_max is None else of_tenant_max
        self._kept = int(at_once_max > 1)  # places that tasks of low priority leave free
        self._held = Counter[str]()
        # (low priority, tenant) → its waiting tasks
        self._waiting: dict[tuple[bool, str], deque[asyncio.Future[None]]] = {}

    @contextlib.asynccontextmanager
    async def take(self, tenant: str, *, low: bool = False) -> AsyncIterator[None]:
        """Hold a place until the end of the context. low: at low priority."""
        if self._may_take(low, tenant):
            self._free -= 1
            self._held[tenant] += 1
        else:
            await self._wait(low, tenant)
        try:
            yield
        finally:
            self._give_back(tenant)

    def _may_take(self, low: bool, tenant: str) -> bool:
        kept = self._kept if low else 0
        return self._free > kept and self._held[tenant] < self._of_tenant_max

    async def _wait(self, low: bool, tenant: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault((low, tenant), deque()).append(turn)
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
        self._free += 1
        while ready := [waiter for waiter in self._waiting if self._may_take(*waiter)]:
            first = min(ready, key=lambda waiter: (waiter[0], self._held[waiter[1]]))
            turns = self._waiting.pop(first)
            turn = turns.popleft()
            if turns:  # its next one comes after the first of others
                self._waiting[first] = turns
            if not turn.done():
                self._held[first[1]] += 1
                self._free -= 1
                turn.set_result(None)
                return
