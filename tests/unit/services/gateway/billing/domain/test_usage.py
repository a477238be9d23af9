"""Buckets of a query for use, and sums per group."""

import pytest

from schemas.units import HOUR_MS
from services.gateway.billing.domain.usage import (
    BucketWidth,
    Group,
    JobFacts,
    UsageSum,
    buckets_of,
    groups_of,
    month_start,
    page_name,
    summed,
)
from services.gateway.views.ports import Buckets
from services.gateway.web.domain.errors import ApiError

DAY = 20_000  # since the epoch
FIRST = DAY * 24
NOW = (FIRST + 60) * HOUR_MS + 1


def asked(
    start: int | None = FIRST * 3_600,
    end: int | None = None,
    width: BucketWidth = "1d",
    limit: int | None = None,
    page: str | None = None,
) -> tuple[Buckets, int | None]:
    return buckets_of(start, end, width, limit, page, NOW)


def test_buckets_begin_at_full_days_and_end_now() -> None:
    assert asked(start=FIRST * 3_600 + 7_201) == (Buckets("hour_utc", FIRST, FIRST + 61, 24), None)
    assert asked(width="1h", limit=2) == (Buckets("hour_utc", FIRST, FIRST + 2, 1), FIRST + 2)


def test_pages_cover_every_hour_once() -> None:
    covered: list[int] = []
    page: str | None = None
    while True:
        buckets, following = asked(limit=1, page=page)
        covered += range(buckets.first, buckets.end)
        if following is None:
            break
        page = page_name(following)
    assert covered == list(range(FIRST, FIRST + 61))


def test_a_month_is_the_default_and_the_future_is_left_out() -> None:
    buckets, _ = asked(start=None, limit=31)
    assert buckets.first * 3_600 == month_start(NOW // 1_000)
    assert asked(end=2**33)[0].end == FIRST + 61


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"start": NOW // 1_000 + 1}, "start_time"),
        ({"end": FIRST * 3_600}, "end_time"),
        ({"limit": 0}, "limit"),
        ({"limit": 32}, "limit"),
        ({"width": "1h", "limit": 169}, "limit"),
        ({"page": "page_"}, "page"),
        ({"page": "page_٣"}, "page"),
        ({"page": f"page_{FIRST + 1}"}, "page"),
        ({"page": f"page_{FIRST - 24}"}, "page"),
        ({"page": str(FIRST)}, "page"),
    ],
)
def test_a_wrong_query_names_its_parameter(query: dict[str, object], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        asked(**query)  # type: ignore[arg-type]  # values of several parameters
    assert (refused.value.status, refused.value.param) == (400, param)


def test_groups_are_named_with_commas_or_repeated() -> None:
    assert groups_of(["day,job", "model"]) == {"day", "job", "model"}
    with pytest.raises(ApiError) as refused:
        groups_of(["day,colour"])
    assert refused.value.param == "group_by"


def test_sums_fold_jobs_into_groups_and_keep_credits_apart() -> None:
    records = [
        {
            "bucket": 24,
            "job_id": job,
            "lane": "free",
            "kind": kind,
            "used_gpu_ms": used,
            "billable_gpu_ms": net,
            "tokens": 0,
        }
        for job, kind, used, net in (
            ("a", "usage", 10, 9),
            ("b", "usage", 5, 5),
            ("a", "credit", 0, -4),
            ("c", "usage", 1, 1),
        )
    ]
    jobs = {"a": JobFacts("m", "key_1"), "b": JobFacts("m", "key_1")}
    by_model = summed(records, frozenset({"model"}), jobs)
    assert by_model == {24: {Group(): UsageSum(1, 1, 0), Group(model="m"): UsageSum(15, 14, 4)}}
    assert summed(records, frozenset(), {}) == {24: {Group(): UsageSum(16, 15, 4)}}
    assert list(summed(records, frozenset({"job", "lane"}), {})[24]) == [
        Group(job=job, lane="free") for job in "abc"
    ]
