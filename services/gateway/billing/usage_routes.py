"""`/v1/usage`: GPU time by day or hour, job, model, key, suffix, metadata, lane and hardware."""

from itertools import starmap
from typing import Annotated

from fastapi import Query

from services.gateway.accounts.deps import NamedTenant
from services.gateway.billing.domain.responses import UsageResultResponse, usage_result_response
from services.gateway.billing.domain.usage import (
    BY,
    GROUPS,
    check_width,
    groups_of,
    needs_facts,
    summed,
)
from services.gateway.billing.job_facts import job_facts
from services.gateway.billing.usage_pages import AskedBuckets, BucketPage
from services.gateway.views.tables.jobs import USAGE
from services.gateway.web.deps import WithDeps
from services.gateway.web.routing import new_router

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
    deps: WithDeps, tenant: NamedTenant, asked: AskedBuckets, group_by: GroupBy = None
) -> BucketPage[UsageResultResponse]:
    """Sum GPU time per day or hour, from the beginning of this month unless asked otherwise."""
    grouped = groups_of(group_by or ())
    check_width(grouped, asked.buckets)
    records = await asked.sums(
        deps, USAGE, tenant, by=BY, of=("used_gpu_ms", "billable_gpu_ms", "tokens")
    )
    ids = {record["job_id"] for record in records} if needs_facts(grouped) else set()
    sums = summed(records, grouped, await job_facts(deps, tenant, ids))
    return asked.response(
        BucketPage[UsageResultResponse],
        lambda hour: starmap(usage_result_response, sums.get(hour, {}).items()),
    )
