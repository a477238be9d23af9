"""`/v1/usage/completions`: tokens of answers by day or hour, API key and model."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from fastapi import Query

from services.gateway.accounts.deps import NamedTenant
from services.gateway.billing.domain.usage import check_width, groups_of
from services.gateway.billing.usage_pages import AskedBuckets, BucketPage
from services.gateway.views.tables.billing import ANSWER_USES
from services.gateway.web.deps import WithDeps
from services.gateway.web.domain.responses import Response
from services.gateway.web.routing import new_router

GROUPS: Final = ("day", "model", "key")
COUNTS: Final = ("requests", "prompt_tokens", "cached_tokens", "completion_tokens", "engine_ms")
GroupBy = Annotated[
    list[str] | None,
    Query(max_length=len(GROUPS), description="of day, model, key; repeated, or with commas"),
]
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


@router.get("/v1/usage/completions")
async def usage_of_answers(
    deps: WithDeps, tenant: NamedTenant, asked: AskedBuckets, group_by: GroupBy = None
) -> BucketPage[AnswerUseResponse]:
    """Sum tokens of answers per day or hour, from the beginning of this month by default.

    They are counted some seconds after an answer's end.
    """
    grouped = groups_of(group_by or (), GROUPS, with_metadata=False)
    check_width(grouped, asked.buckets)
    by = [name for name, group in (("model", "model"), ("key_id", "key")) if group in grouped]
    sums: dict[int, list[AnswerUseResponse]] = defaultdict(list)
    for record in await asked.sums(deps, ANSWER_USES, tenant, by=by, of=COUNTS):
        sums[record["bucket"]].append(_result(record))
    return asked.response(BucketPage[AnswerUseResponse], lambda hour: sums.get(hour, ()))


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
