"""Usage of a tenant, by day or hour, and the statement of a job.

`/v1/usage`: GPU time by job, model, key, suffix, metadata, lane and hardware.
`/v1/usage/completions`, `/v1/usage/sessions`: tokens of answers, and of sessions.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import starmap
from typing import Annotated, Any, Final, Literal

from fastapi import Query

from schemas.session import TOKEN_KINDS, SessionTokens
from services.gateway.accounts.deps import NamedTenant
from services.gateway.billing.domain.responses import (
    StatementLineResponse,
    UsageResultResponse,
    statement_line_response,
    usage_result_response,
)
from services.gateway.billing.domain.usage import (
    BY,
    GROUPS,
    check_width,
    groups_of,
    needs_facts,
    summed,
)
from services.gateway.billing.job_facts import job_facts
from services.gateway.billing.usage_pages import AskedBuckets, BucketPage, PageOfBuckets
from services.gateway.jobs.deps import WithJobDeps
from services.gateway.jobs.routes import find_job
from services.gateway.views.ports import Where
from services.gateway.views.table import Table
from services.gateway.views.tables.billing import ANSWER_USES, SESSION_USES
from services.gateway.views.tables.jobs import USAGE
from services.gateway.web.deps import Deps, WithDeps
from services.gateway.web.domain.responses import Response, fields_of, with_fields
from services.gateway.web.resources import Resource, each
from services.gateway.web.routing import new_router

COUNTS: Final = ("requests", "prompt_tokens", "cached_tokens", "completion_tokens", "engine_ms")
# group → column of it
ANSWER_GROUPS: Final = {"model": "model", "key": "key_id"}
SESSION_GROUPS: Final = {"session": "session_id"}


def _grouping(*groups: str, with_metadata: bool = False) -> Any:
    """Describe the parameter `group_by`, which names some of these groups."""
    named = ", ".join((*groups, *(("metadata[NAME]",) if with_metadata else ())))
    return Query(
        max_length=len(groups) + with_metadata, description=f"of {named}; repeated, or with commas"
    )


router = new_router("billing")


@router.get("/v1/usage")
async def usage(
    deps: WithDeps,
    tenant: NamedTenant,
    asked: AskedBuckets,
    group_by: Annotated[list[str] | None, _grouping(*GROUPS, with_metadata=True)] = None,
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


async def usage_of_job(job_id: str, deps: WithJobDeps, tenant: NamedTenant) -> Where:
    """Slices of use and credits of a job. Raises ApiError 404."""
    await find_job(deps, tenant, job_id)
    return {"tenant": tenant, "job_id": job_id}


STATEMENT_LINE: Final = Resource(
    noun="statement line",
    table=USAGE,
    response=StatementLineResponse,
    respond=each(lambda _, row: statement_line_response(row)),
    rows=usage_of_job,
    newest_first=False,
)
STATEMENT_LINE.add_list(
    router,
    "/v1/fine_tuning/jobs/{job_id}/statement",
    "job_statement",
    "List a job's slices of use and credits in the order of the log.",
)


async def _token_sums(
    deps: Deps,
    tenant: str,
    asked: PageOfBuckets,
    group_by: list[str] | None,
    table: Table[Any],
    columns: Mapping[str, str],
    of: Sequence[str],
) -> Mapping[int, Sequence[Mapping[str, Any]]]:
    """Sums of the columns `of` by bucket, for the groups of `columns`. Raises ApiError 400."""
    grouped = groups_of(group_by or (), ("day", *columns), with_metadata=False)
    check_width(grouped, asked.buckets)
    by = [column for group, column in columns.items() if group in grouped]
    sums: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for record in await asked.sums(deps, table, tenant, by=by, of=of):
        sums[record["bucket"]].append(record)
    return sums


class AnswerUseResponse(Response):
    """Tokens of one group in one bucket. `model` and `api_key_id` are null unless it groups by it.

    `input_cached_tokens`: of `input_tokens`, what was in memory from an earlier question.
    `output_tokens`: written, also where the client left before the end. `engine_ms`: time of the
    engine, of each answer.
    """

    object: Literal["usage.completions.result"] = "usage.completions.result"
    num_model_requests: int
    input_tokens: int
    input_cached_tokens: int
    output_tokens: int
    engine_ms: int
    api_key_id: str | None
    model: str | None


@router.get("/v1/usage/completions")
async def usage_of_answers(
    deps: WithDeps,
    tenant: NamedTenant,
    asked: AskedBuckets,
    group_by: Annotated[list[str] | None, _grouping("day", *ANSWER_GROUPS)] = None,
) -> BucketPage[AnswerUseResponse]:
    """Sum tokens of answers per day or hour, from the beginning of this month by default.

    They are counted some seconds after an answer's end.
    """
    sums = await _token_sums(deps, tenant, asked, group_by, ANSWER_USES, ANSWER_GROUPS, COUNTS)

    def response(record: Mapping[str, Any]) -> AnswerUseResponse:
        return AnswerUseResponse(
            num_model_requests=record["requests"],
            input_tokens=record["prompt_tokens"],
            input_cached_tokens=record["cached_tokens"],
            output_tokens=record["completion_tokens"],
            engine_ms=record["engine_ms"],
            api_key_id=record.get("key_id"),
            model=record.get("model"),
        )

    return asked.response(
        BucketPage[AnswerUseResponse], lambda hour: map(response, sums.get(hour, ()))
    )


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
    deps: WithDeps,
    tenant: NamedTenant,
    asked: AskedBuckets,
    group_by: Annotated[list[str] | None, _grouping("day", *SESSION_GROUPS)] = None,
) -> BucketPage[SessionUseResponse]:
    """Sum tokens of sessions per day or hour, from the beginning of this month by default."""
    sums = await _token_sums(
        deps, tenant, asked, group_by, SESSION_USES, SESSION_GROUPS, TOKEN_KINDS
    )

    def response(record: Mapping[str, Any]) -> SessionUseResponse:
        return SessionUseResponse(
            num_requests=record["rows"],
            session_id=record.get("session_id"),
            **{kind: record[kind] for kind in TOKEN_KINDS},
        )

    return asked.response(
        BucketPage[SessionUseResponse], lambda hour: map(response, sums.get(hour, ()))
    )
