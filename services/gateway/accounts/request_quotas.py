"""Limits on a tenant's requests, and on the records that they leave in journals, by its plan.

All keys of a tenant count together: one with many keys has no more than one with a single key.
Each command of a request, also one that is refused, is at least one entry of a journal, and
journals are kept for ever. Requests of operators are not counted: a tenant that has none left must
not keep them from suspending it.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Generic, TypeVar

from schemas import errors
from schemas.account import ADMIN_SCOPE
from services.gateway.accounts.auth import digest
from services.gateway.accounts.deps import limits_of
from services.gateway.web.commands import COUNT_RECORD
from services.gateway.web.deps import Deps, Principal
from services.gateway.web.domain.errors import ApiError, too_many_requests
from services.gateway.web.domain.token_bucket import MINUTE_US, duration
from services.gateway.web.rate_limits import LocalRates

BUCKET: Final = "records/"  # before the tenant; no key has a slash in its id
BURST_PARTS: Final = 6  # of a minute; what may be sent at once is one of them
LIMIT_S: Final = 5.0  # for which a plan's limit is kept, and the tenant of a refused key
TENANTS_MAX: Final = 10_000  # whose limits are kept, and keys

Value = TypeVar("Value")


class _Remembered(Generic[Value]):
    """Values by key, each for a while; no more than TENANTS_MAX of them."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._kept: OrderedDict[str, tuple[float, Value]] = OrderedDict()

    def get(self, key: str) -> tuple[float, Value] | None:
        """For how many seconds it is still kept, more than none, and the value."""
        until_s, *kept = self._kept.get(key, (0.0,))
        left_s = until_s - self._now_s()
        return (left_s, kept[0]) if left_s > 0 else None

    def put(self, key: str, value: Value, for_s: float) -> None:
        self._kept[key] = (self._now_s() + for_s, value)
        self._kept.move_to_end(key)
        if len(self._kept) > TENANTS_MAX:
            self._kept.popitem(last=False)


class RequestQuota:
    """Requests of tenants to this gateway. `now_s`: any clock that never goes back."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._rates = LocalRates(lambda: int(1e6 * now_s()))
        self._limits: _Remembered[int] = _Remembered(now_s)
        self._refused: _Remembered[str] = _Remembered(now_s)

    def tenant_of_refused(self, sha256: str) -> str | None:
        """The tenant of a key that was refused a moment ago, by its digest."""
        kept = self._refused.get(sha256)
        return None if kept is None else kept[1]

    def remember_refused(self, sha256: str, tenant: str) -> None:
        self._refused.put(sha256, tenant, LIMIT_S)

    async def count(self, deps: Deps, tenant: str) -> None:
        """Raises ApiError 429 where the plan allows no more now."""
        limit = await self._limit(deps, tenant)
        burst = max(1, limit // BURST_PARTS)
        allowance = await self._rates.take(tenant, burst, burst * MINUTE_US // limit)
        if not allowance.allowed:
            who = "your plan (`requests_per_minute_max`) allows all keys of a tenant together"
            raise too_many_requests(who, limit, allowance.retry_ms, "another plan")

    async def _limit(self, deps: Deps, tenant: str) -> int:
        kept = self._limits.get(tenant)
        if kept is not None:
            return kept[1]
        limit = (await limits_of(deps, tenant)).requests_per_minute_max
        self._limits.put(tenant, limit, LIMIT_S)
        return limit


class RecordQuota:
    """Records of tenants: in buckets that all gateways share.

    What a bucket has refused is refused again from memory until it may have something left.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._refused: _Remembered[int] = _Remembered(now_s)

    async def count(self, deps: Deps, tenant: str) -> None:
        """Raises ApiError 429 where the plan allows no more now."""
        kept = self._refused.get(tenant)
        if kept is not None:
            left_s, limit = kept
            retry_ms = math.ceil(1_000 * left_s)
        else:
            limit = (await limits_of(deps, tenant)).records_per_minute_max
            retry_ms = (await deps.rates.take(f"{BUCKET}{tenant}", limit)).retry_ms
            if retry_ms == 0:
                return
            self._refused.put(tenant, limit, min(retry_ms / 1_000, LIMIT_S))
        message = (
            f"Your plan allows {limit} requests a minute that change something "
            f"(`records_per_minute_max`). Try again in {duration(retry_ms)}."
        )
        headers = {"retry-after": str(-(-retry_ms // 1_000)), "x-should-retry": "true"}
        raise ApiError(429, errors.QUOTA_EXCEEDED, message, headers=headers)


def counting(
    authenticate: Callable[[Deps, str | None], Awaitable[Principal]],
) -> Callable[[Deps, str | None], Awaitable[Principal]]:
    """Wrap an authentication: the request and its commands count for the tenant of its key.

    A key that was refused a moment ago is refused again before it is looked up.
    """
    requests, records = RequestQuota(), RecordQuota()

    async def identify(deps: Deps, authorization: str | None) -> Principal:
        COUNT_RECORD.set(None)
        sha256 = digest(authorization or "")
        counted = requests.tenant_of_refused(sha256)
        if counted is not None:
            await requests.count(deps, counted)
        caller = await authenticate(deps, authorization)
        if ADMIN_SCOPE not in caller.scopes:
            if counted is None:
                try:
                    await requests.count(deps, caller.tenant)
                except ApiError:
                    requests.remember_refused(sha256, caller.tenant)
                    raise
            COUNT_RECORD.set(partial(records.count, deps, caller.tenant))
        return caller

    return identify
