"""Results of use and lines of a statement, as the API shows them."""

from services.gateway.billing.domain.responses import statement_line_response, usage_result_response
from services.gateway.billing.domain.usage import Group, UsageSum
from services.gateway.views.tables.jobs import USAGE
from tests.unit.services.gateway.view_rows import folded, only
from tests.unit.services.gateway.views.projections.test_pool import CREDIT


def test_credits_are_taken_off_the_billable_time_of_a_group() -> None:
    result = usage_result_response(Group(lane="free"), UsageSum(9, 8, 3))
    assert (result.net_gpu_ms, result.lane, result.job_id) == (5, "free", None)


def test_a_credit_is_below_zero_and_names_its_cause_and_event() -> None:
    line = statement_line_response(only(folded("pool", CREDIT, key="default"), USAGE))
    assert (line.kind, line.cause, line.billable_gpu_ms) == ("credit", "lost", -560_000)
    assert line.event.model_dump() == {
        "topic": "tunery.pool.journal.v1",
        "partition": 0,
        "incarnation": 0,
        "offset": 1,
    }
