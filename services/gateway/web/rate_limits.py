"""Rate limits: buckets in Valkey shared by all gateways, or local ones while Valkey is down."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import redis.asyncio

from schemas.units import Ms
from services.gateway.ports import Rates
from services.gateway.timeouts import in_time
from services.gateway.web.domain.token_bucket import MINUTE_US, Allowance, answer, take
from services.gateway.web.metrics import RATES
from tunery.runtime.telemetry.logs import log_event

LOG: Final = logging.getLogger("tunery.gateway")
BUCKETS_MAX: Final = 10_000  # in this process; the least recently used is dropped
ANSWER_MS_MAX: Final[Ms] = 100  # the limiter must not delay requests
MISSES_MAX: Final = 3  # answers in a row that fail or are late; one may be late on a busy machine
AWAY_MS: Final[Ms] = 2_000  # pause after so many before Valkey is tried again
PREFIX: Final = "rate:"
# services.gateway.web.domain.token_bucket.take in Lua, on Valkey's clock
SCRIPT: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local each, capacity = tonumber(ARGV[1]), tonumber(ARGV[2])
local before = math.max(tonumber(redis.call('GET', KEYS[1]) or '0'), now)
local after = before + each
local late = after - now - capacity
if late > 0 then return {before - now, late} end
redis.call('SET', KEYS[1], string.format('%d', after), 'PX', math.ceil(capacity / 1000) + 1000)
return {after - now, 0}
"""


class LocalRates:
    """Implements `Rates` for one process. `now_us`: any clock that never goes back."""

    def __init__(self, now_us: Callable[[], int] = lambda: time.monotonic_ns() // 1_000) -> None:
        self._now_us = now_us
        self._full_at_us: OrderedDict[str, int] = OrderedDict()

    async def take(self, name: str, limit: int, window_us: int = MINUTE_US) -> Allowance:
        after, allowance = take(self._full_at_us.pop(name, 0), self._now_us(), limit, window_us)
        self._full_at_us[name] = after
        if len(self._full_at_us) > BUCKETS_MAX:
            self._full_at_us.popitem(last=False)
        return allowance

    async def close(self) -> None:
        return


class ValkeyRates:
    """Implements `Rates`. Raises RedisError, OSError, TimeoutError, ValueError."""

    def __init__(self, url: str) -> None:
        # whatever the client retries, `take` ends it after ANSWER_MS_MAX
        self._client: Any = redis.asyncio.from_url(url, protocol=2)
        self._script = self._client.register_script(SCRIPT)

    async def take(self, name: str, limit: int, window_us: int = MINUTE_US) -> Allowance:
        each_us = window_us // limit
        asked = self._script(keys=[PREFIX + name], args=[each_us, each_us * limit])
        until_full_us, late_us = await in_time(asked, ANSWER_MS_MAX)
        return answer(limit, until_full_us, late_us, window_us)

    async def close(self) -> None:
        await self._client.aclose()


class FallbackRates:
    """Implements `Rates`: uses `shared` while it answers, otherwise `local`.

    It fails open: while Valkey is down, every gateway by itself allows the whole limit.
    """

    def __init__(self, shared: Rates, local: Rates) -> None:
        self._shared, self._local = shared, local
        self._misses = 0
        self._away_until = 0.0

    async def take(self, name: str, limit: int, window_us: int = MINUTE_US) -> Allowance:
        """Take a token from the shared bucket, or from the local one while Valkey is down."""
        now = asyncio.get_running_loop().time()
        if now >= self._away_until:
            try:
                allowance = await self._shared.take(name, limit, window_us)
            except Exception as error:  # a connection that breaks in an answer gives any kind
                self._note_miss(now, error)
            else:
                self._mark_available()
                RATES.labels("shared").inc()
                return allowance
        RATES.labels("alone").inc()
        return await self._local.take(name, limit, window_us)

    def _note_miss(self, now: float, error: Exception) -> None:
        self._misses += 1
        if self._misses < MISSES_MAX:
            return
        if not self._away_until:
            why = f"{type(error).__name__}: rate limits are counted by each gateway alone"
            log_event(LOG, logging.WARNING, "valkey.unavailable", why=why)
        self._away_until = now + AWAY_MS / 1_000

    def _mark_available(self) -> None:
        if self._away_until:
            log_event(LOG, logging.INFO, "valkey.available")
        self._misses, self._away_until = 0, 0.0

    async def close(self) -> None:
        await self._shared.close()


def rates_of(valkey_url: str | None) -> Rates:
    local = LocalRates()
    return local if valkey_url is None else FallbackRates(ValkeyRates(valkey_url), local)
