"""How many requests of a tenant may be recorded for ever, within an hour, by its plan.

Each command of a request, also one that is refused, is at least one entry of a journal, and
journals are kept. Commands of operators are not counted: a tenant that has none left must not keep
them from suspending it.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from schemas import errors
from schemas.account import ADMIN_SCOPE
from services.gateway.accounts.deps import limits_of
from services.gateway.web.commands import COUNT_RECORD
from services.gateway.web.deps import Deps, Principal
from services.gateway.web.errors import ApiError
from services.gateway.web.token_bucket import HOUR_US, duration

BUCKET: Final = "records/"  # before the tenant; no key has a slash in its id


def counting(
    authenticate: Callable[[Deps, str | None], Awaitable[Principal]],
) -> Callable[[Deps, str | None], Awaitable[Principal]]:
    """The same, and from then on commands of the request count for the tenant of its key."""

    async def identify(deps: Deps, authorization: str | None) -> Principal:
        COUNT_RECORD.set(None)
        caller = await authenticate(deps, authorization)
        if ADMIN_SCOPE not in caller.scopes:
            COUNT_RECORD.set(partial(count_record, deps, caller.tenant))
        return caller

    return identify


async def count_record(deps: Deps, tenant: str) -> None:
    """Raises ApiError 429 where the plan allows no more in this hour."""
    limit = (await limits_of(deps, tenant)).records_per_hour_max
    allowance = await deps.rates.take(f"{BUCKET}{tenant}", limit, HOUR_US)
    if allowance.allowed:
        return
    message = (
        f"Your plan allows {limit} requests an hour that change something "
        f"(`records_per_hour_max`). Try again in {duration(allowance.retry_ms)}."
    )
    headers = {"retry-after": str(-(-allowance.retry_ms // 1_000)), "x-should-retry": "true"}
    raise ApiError(429, errors.QUOTA_EXCEEDED, message, headers=headers)
