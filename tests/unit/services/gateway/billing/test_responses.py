"""Buckets of use and lines of a statement, as the API shows them."""

from services.gateway.billing.responses import bucket_responses, statement_line_response
from services.gateway.billing.usage import Group, UsageSum
from services.gateway.jobs.tables import USAGE
from services.gateway.ports import Buckets
from tests.unit.services.gateway.jobs.test_pool_projection import CREDIT
from tests.unit.services.gateway.view_rows import folded, only


def test_a_bucket_without_use_is_there_and_empty() -> None:
    sums = {24: {Group(lane="free"): UsageSum(9, 8, 3)}}
    first, second = bucket_responses(Buckets("hour_utc", 24, 49, 24), sums)
    assert (first.start_time, first.end_time) == (86_400, 172_800)
    assert [(result.net_gpu_ms, result.lane, result.job_id) for result in first.results] == [
        (5, "free", None)
    ]
    assert second.results == []


def test_a_credit_is_below_zero_and_names_its_cause_and_event() -> None:
    line = statement_line_response(only(folded("pool", CREDIT, key="default"), USAGE))
    assert (line.kind, line.cause, line.billable_gpu_ms) == ("credit", "lost", -560_000)
    assert line.event.model_dump() == {
        "topic": "tunery.pool.journal.v1",
        "partition": 0,
        "incarnation": 0,
        "offset": 1,
    }
