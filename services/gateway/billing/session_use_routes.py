"""`/v1/usage/sessions`: tokens of sessions by day or hour, session and kind."""

from collections import defaultdict
from typing import Annotated, Final, Literal

from fastapi import Query

from schemas.session import TOKEN_KINDS, SessionTokens
from services.gateway.accounts.deps import NamedTenant
from services.gateway.billing.domain.usage import check_width, groups_of
from services.gateway.billing.usage_pages import AskedBuckets, BucketPage
from services.gateway.views.tables.billing import SESSION_USES
from services.gateway.web.deps import WithDeps
from services.gateway.web.domain.responses import Response, fields_of, with_fields
from services.gateway.web.routing import new_router

GROUPS: Final = ("day", "session")
GroupBy = Annotated[
    list[str] | None,
    Query(max_length=len(GROUPS), description="of day, session; repeated, or with commas"),
]
router = new_router("billing")


@with_fields(**fields_of(SessionTokens))
class SessionUseResponse(Response):
    """Tokens of one group in one bucket, by kind. `session_id` is null unless it groups by it.

    `train_tokens`: of passes with gradients. `prefill_tokens`: of passes without, and of prompts.
    `sample_tokens`: sampled. What they cost is the time of the session's slot, in `/v1/usage`.
    `num_requests` are those that were answered.
    """

    object: Literal["usage.sessions.result"] = "usage.sessions.result"
    num_requests: int
    session_id: str | None


@router.get("/v1/usage/sessions")
async def usage_of_sessions(
    deps: WithDeps, tenant: NamedTenant, asked: AskedBuckets, group_by: GroupBy = None
) -> BucketPage[SessionUseResponse]:
    """Sum tokens of sessions per day or hour, from the beginning of this month by default."""
    grouped = groups_of(group_by or (), GROUPS, with_metadata=False)
    check_width(grouped, asked.buckets)
    by = ["session_id"] if "session" in grouped else []
    sums: dict[int, list[SessionUseResponse]] = defaultdict(list)
    for record in await asked.sums(deps, SESSION_USES, tenant, by=by, of=TOKEN_KINDS):
        result = SessionUseResponse(
            num_requests=record["rows"],
            session_id=record.get("session_id"),
            **{kind: record[kind] for kind in TOKEN_KINDS},
        )
        sums[record["bucket"]].append(result)
    return asked.response(BucketPage[SessionUseResponse], lambda hour: sums.get(hour, ()))
