"""How many requests a tenant may send, and how many of them journals may keep, by its plan.

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
from typing import Final

from schemas import errors
from schemas.account import ADMIN_SCOPE
from services.gateway.accounts.auth import digest
from services.gateway.accounts.deps import limits_of
from services.gateway.web.commands import COUNT_RECORD
from services.gateway.web.deps import Deps, Principal
from services.gateway.web.errors import ApiError, too_many_requests
from services.gateway.web.rate_limits import LocalRates
from services.gateway.web.token_bucket import MINUTE_US, duration

BUCKET: Final = "records/"  # before the tenant; no key has a slash in its id
BURST_PARTS: Final = 6  # of a minute; what may be sent at once is one of them
LIMIT_S: Final = 5.0  # for which a plan's limit is kept, and the tenant of a refused key
TENANTS_MAX: Final = 10_000  # whose limits are kept, and keys


class RequestQuota:
    """Requests of tenants to this gateway. `now_s`: any clock that never goes back."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._rates = LocalRates(lambda: int(1e6 * now_s()))
        self._limits: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._refused: OrderedDict[str, tuple[float, str]] = OrderedDict()

    def tenant_of_refused(self, sha256: str) -> str | None:
        """The tenant of a key that was refused a moment ago, by its digest."""
        until_s, tenant = self._refused.get(sha256, (0.0, ""))
        return tenant if self._now_s() < until_s else None

    def remember_refused(self, sha256: str, tenant: str) -> None:
        self._refused[sha256] = (self._now_s() + LIMIT_S, tenant)
        self._refused.move_to_end(sha256)
        if len(self._refused) > TENANTS_MAX:
            self._refused.popitem(last=False)

    async def count(self, deps: Deps, tenant: str) -> None:
        """Raises ApiError 429 where the plan allows no more now."""
        limit = await self._limit(deps, tenant)
        burst = max(1, limit // BURST_PARTS)
        allowance = await self._rates.take(tenant, burst, burst * MINUTE_US // limit)
        if not allowance.allowed:
            who = "your plan (`requests_per_minute_max`) allows all keys of a tenant together"
            raise too_many_requests(who, limit, allowance.retry_ms, "another plan")

    async def _limit(self, deps: Deps, tenant: str) -> int:
        until_s, limit = self._limits.get(tenant, (0.0, 0))
        now_s = self._now_s()
        if now_s >= until_s:
            limit = (await limits_of(deps, tenant)).requests_per_minute_max
            self._limits[tenant] = (now_s + LIMIT_S, limit)
            self._limits.move_to_end(tenant)
            if len(self._limits) > TENANTS_MAX:
                self._limits.popitem(last=False)
        return limit


class RecordQuota:
    """Records of tenants: in buckets that all gateways share.

    What a bucket has refused is refused again from memory until it may have something left.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._refused: OrderedDict[str, tuple[float, int]] = OrderedDict()

    async def count(self, deps: Deps, tenant: str) -> None:
        """Raises ApiError 429 where the plan allows no more now."""
        until_s, limit = self._refused.get(tenant, (0.0, 0))
        retry_ms = math.ceil(1_000 * (until_s - self._now_s()))
        if retry_ms <= 0:
            limit = (await limits_of(deps, tenant)).records_per_minute_max
            retry_ms = (await deps.rates.take(f"{BUCKET}{tenant}", limit)).retry_ms
            if retry_ms == 0:
                return
            until_s = self._now_s() + min(retry_ms / 1_000, LIMIT_S)
            self._refused[tenant] = (until_s, limit)
            self._refused.move_to_end(tenant)
            if len(self._refused) > TENANTS_MAX:
                self._refused.popitem(last=False)
        message = (
            f"Your plan allows {limit} requests a minute that change something "
            f"(`records_per_minute_max`). Try again in {duration(retry_ms)}."
        )
        headers = {"retry-after": str(-(-retry_ms // 1_000)), "x-should-retry": "true"}
        raise ApiError(429, errors.QUOTA_EXCEEDED, message, headers=headers)


def counting(
    authenticate: Callable[[Deps, str | None], Awaitable[Principal]],
) -> Callable[[Deps, str | None], Awaitable[Principal]]:
    """The same, and the request and its commands count for the tenant of its key.

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
