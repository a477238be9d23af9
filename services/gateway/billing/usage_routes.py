"""`/v1/usage`: GPU time by day or hour, job, model, key, suffix, metadata, lane and hardware."""

from typing import Annotated, Final

from fastapi import Query

from services.gateway.accounts.deps import NamedTenant
from services.gateway.billing.job_facts import job_facts
from services.gateway.billing.responses import UsagePageResponse, bucket_responses
from services.gateway.billing.usage import (
    BY,
    GROUPS,
    BucketWidth,
    buckets_of,
    check_width,
    groups_of,
    needs_facts,
    page_name,
    summed,
)
from services.gateway.jobs.tables import USAGE
from services.gateway.web.bodies import SECONDS_MAX
from services.gateway.web.deps import WithDeps
from services.gateway.web.errors import ApiError, invalid
from services.gateway.web.pages import ID_CHARACTERS_MAX
from services.gateway.web.routing import new_router

SUMS_MAX: Final = 50_000  # of one page: 31 days of 1,600 jobs a day
Seconds = Annotated[int | None, Query(ge=0, le=SECONDS_MAX, description="seconds since the epoch")]
GroupBy = Annotated[
    list[str] | None,
    Query(
        max_length=len(GROUPS) + 1,
        description=f"of {', '.join(GROUPS)}, metadata[NAME]; repeated, or with commas",
    ),
]
router = new_router("billing")


@router.get("/v1/usage")
async def usage(
    deps: WithDeps,
    tenant: NamedTenant,
    start_time: Seconds = None,
    end_time: Seconds = None,
    bucket_width: BucketWidth = "1d",
    group_by: GroupBy = None,
    limit: int | None = None,
    page: Annotated[str | None, Query(max_length=ID_CHARACTERS_MAX)] = None,
) -> UsagePageResponse:
    """Sum GPU time per day or hour, from the beginning of this month unless asked otherwise."""
    grouped = groups_of(group_by or ())
    check_width(grouped, bucket_width)
    now = deps.clock.now_ms()
    buckets, following = buckets_of(start_time, end_time, bucket_width, limit, page, now)
    records = await deps.views.sums(
        USAGE,
        {"tenant": tenant},
        buckets,
        by=BY,
        of=("used_gpu_ms", "billable_gpu_ms", "tokens"),
        limit=SUMS_MAX + 1,
    )
    if len(records) > SUMS_MAX:
        raise too_many()
    ids = {record["job_id"] for record in records} if needs_facts(grouped) else set()
    jobs = await job_facts(deps, tenant, ids)
    return UsagePageResponse(
        data=bucket_responses(buckets, summed(records, grouped, jobs)),
        has_more=following is not None,
        next_page=None if following is None else page_name(following),
    )


def too_many() -> ApiError:
    """The error for a page of more than SUMS_MAX sums."""
    return invalid(f"There are more than {SUMS_MAX:,} sums in it; lower limit.", "limit")
