"""`/v1/usage/completions`: tokens of answers by day or hour, API key and model."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal

from fastapi import Query

from schemas.units import HOUR_MS
from services.gateway.accounts.deps import NamedTenant
from services.gateway.billing.tables import ANSWER_USES
from services.gateway.billing.usage import (
    BucketWidth,
    buckets_of,
    check_width,
    groups_of,
    page_name,
)
from services.gateway.billing.usage_routes import SUMS_MAX, Seconds, too_many
from services.gateway.web.deps import WithDeps
from services.gateway.web.pages import ID_CHARACTERS_MAX
from services.gateway.web.responses import Response
from services.gateway.web.routing import new_router

GROUPS: Final = ("day", "model", "key")
COUNTS: Final = ("requests", "prompt_tokens", "cached_tokens", "completion_tokens", "engine_ms")
router = new_router("billing")


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


class AnswerUseBucketResponse(Response):
    object: Literal["bucket"] = "bucket"
    start_time: int
    end_time: int
    results: list[AnswerUseResponse]


class AnswerUsePageResponse(Response):
    """`next_page`: the value of `page` for the following buckets."""

    object: Literal["page"] = "page"
    data: list[AnswerUseBucketResponse]
    has_more: bool
    next_page: str | None


@router.get("/v1/usage/completions")
async def usage_of_answers(
    deps: WithDeps,
    tenant: NamedTenant,
    start_time: Seconds = None,
    end_time: Seconds = None,
    bucket_width: BucketWidth = "1d",
    group_by: Annotated[
        list[str] | None,
        Query(max_length=len(GROUPS), description="of day, model, key; repeated, or with commas"),
    ] = None,
    limit: int | None = None,
    page: Annotated[str | None, Query(max_length=ID_CHARACTERS_MAX)] = None,
) -> AnswerUsePageResponse:
    """Sum tokens of answers per day or hour, from the beginning of this month by default.

    They are counted some seconds after an answer's end.
    """
    grouped = groups_of(group_by or (), GROUPS, with_metadata=False)
    check_width(grouped, bucket_width)
    now = deps.clock.now_ms()
    buckets, following = buckets_of(start_time, end_time, bucket_width, limit, page, now)
    by = [name for name, group in (("model", "model"), ("key_id", "key")) if group in grouped]
    records = await deps.views.sums(
        ANSWER_USES, {"tenant": tenant}, buckets, by=by, of=COUNTS, limit=SUMS_MAX + 1
    )
    if len(records) > SUMS_MAX:
        raise too_many()
    hours = range(buckets.first, buckets.end, buckets.width)
    return AnswerUsePageResponse(
        data=[_bucket(hour, buckets.width, records) for hour in hours],
        has_more=following is not None,
        next_page=None if following is None else page_name(following),
    )


def _bucket(hour: int, width: int, records: Iterable[Mapping[str, Any]]) -> AnswerUseBucketResponse:
    hour_s = HOUR_MS // 1_000
    return AnswerUseBucketResponse(
        start_time=hour * hour_s,
        end_time=(hour + width) * hour_s,
        results=[_result(record) for record in records if record["bucket"] == hour],
    )


def _result(record: Mapping[str, Any]) -> AnswerUseResponse:
    return AnswerUseResponse(
        num_model_requests=record["requests"],
        input_tokens=record["prompt_tokens"],
        input_cached_tokens=record["cached_tokens"],
        output_tokens=record["completion_tokens"],
        engine_ms=record["engine_ms"],
        api_key_id=record.get("key_id"),
        model=record.get("model"),
    )
