"""Rests between a tenant's pieces of work, while others have work.

Priority alone does not keep work out of the way of others: two threads of one core, caches and
memory are shared whatever their priority. So work that stands back also rests.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

WHOLE_RESTS: Final = 5  # niceness for which work rests as long as it ran; for 15, nine times
OTHERS_S: Final = 10.0  # for which others count as having work after their last one
REST_S_MAX: Final = 15.0  # who rests may hold a place for which others wait
POLL_S: Final = 0.5  # whether others still have work


class Rests:
    """When each tenant may begin its next piece of work.

    resting_max: pieces of work that rest at a time, of all tenants; more begin at once. None: any.
    now_s: a clock that never goes back
    """

    def __init__(
        self, now_s: Callable[[], float] = time.monotonic, resting_max: int | None = None
    ) -> None:
        self._now_s, self._resting_max = now_s, resting_max
        self._resting = 0
        self._working = Counter[str]()
        self._ended_s: dict[str, float] = {}
        self._until_s: dict[str, float] = {}

    async def wait(self, tenant: str) -> None:
        """Return when the tenant may begin: its pause is over, or no other tenant has work."""
        if self._resting_max is not None and self._resting >= self._resting_max:
            return
        self._resting += 1
        try:
            while (left_s := self.due_s(tenant)) > 0:  # noqa: ASYNC110  # time passes
                await asyncio.sleep(min(left_s, POLL_S))
        finally:
            self._resting -= 1

    def due_s(self, tenant: str) -> float:
        """Seconds that it has to rest from now on."""
        now_s = self._now_s()
        for name, ended_s in [*self._ended_s.items()]:
            if ended_s + max(OTHERS_S, REST_S_MAX) < now_s:
                del self._ended_s[name]
                self._until_s.pop(name, None)
        is_alone = not any(count for name, count in self._working.items() if name != tenant)
        if is_alone and not any(
            now_s < ended_s + OTHERS_S for name, ended_s in self._ended_s.items() if name != tenant
        ):
            return 0.0
        return max(0.0, self._until_s.get(tenant, 0.0) - now_s)

    @contextmanager
    def working(self, tenant: str, niceness: int) -> Iterator[None]:
        """A piece of work of a tenant, whose rest is added at its end."""
        begun_s = self._now_s()
        self._working[tenant] += 1
        try:
            yield
        finally:
            self._working[tenant] -= 1
            if not self._working[tenant]:
                del self._working[tenant]
            now_s = self._now_s()
            rest_s = (now_s - begun_s) * (niceness / WHOLE_RESTS) ** 2
            until_s = max(now_s, self._until_s.get(tenant, 0.0)) + rest_s
            self._until_s[tenant] = min(until_s, now_s + REST_S_MAX)
            self._ended_s[tenant] = now_s
