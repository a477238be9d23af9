"""`/v1/usage`: GPU time by day or hour, job, model, key, lane, role and hardware."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query

from services.gateway.accounts.deps import NamedTenant
from services.gateway.billing.responses import UsagePageResponse, bucket_responses
from services.gateway.billing.usage import (
    BY,
    GROUPS,
    BucketWidth,
    JobFacts,
    buckets_of,
    groups_of,
    page_name,
    summed,
)
from services.gateway.jobs.tables import JOBS, USAGE
from services.gateway.web.bodies import SECONDS_MAX
from services.gateway.web.deps import Deps, WithDeps
from services.gateway.web.errors import ApiError, invalid
from services.gateway.web.pages import ID_CHARACTERS_MAX

SUMS_MAX: Final = 50_000  # of one page: 31 days of 1,600 jobs a day
JOBS_MAX: Final = 1_000  # of one query
Seconds = Annotated[int | None, Query(ge=0, le=SECONDS_MAX, description="seconds since the epoch")]
GroupBy = Annotated[
    list[str] | None,
    Query(max_length=len(GROUPS), description=f"of {', '.join(GROUPS)}; repeated, or with commas"),
]
router = APIRouter(tags=["billing"])


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
    if "day" in grouped and bucket_width != "1d":
        raise invalid("group_by=day needs bucket_width=1d.", "bucket_width")
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
        raise _too_many()
    named = grouped & {"model", "key"}
    jobs = await _facts(deps, tenant, records) if named else {}
    return UsagePageResponse(
        data=bucket_responses(buckets, summed(records, grouped, jobs)),
        has_more=following is not None,
        next_page=None if following is None else page_name(following),
    )


def _too_many() -> ApiError:
    return invalid(f"There are more than {SUMS_MAX:,} jobs in it; lower limit.", "limit")


async def _facts(
    deps: Deps, tenant: str, records: Sequence[Mapping[str, Any]]
) -> Mapping[str, JobFacts]:
    """Base model and API key of each job that used something."""
    ids = sorted({record["job_id"] for record in records})
    facts: dict[str, JobFacts] = {}
    for start in range(0, len(ids), JOBS_MAX):
        some = tuple(ids[start : start + JOBS_MAX])
        rows = await deps.views.page(JOBS, {"tenant": tenant, "id": some}, limit=JOBS_MAX)
        facts.update(
            (row.id, JobFacts(row.spec.base.base_id, deps.unseal(row.submitted_by))) for row in rows
        )
    return facts
