"""The queue with other nodes and other jobs: rows as the planner gets them."""

import pytest

from services.gateway.jobs.domain.queue_view import QueueRows, view_queue
from services.gateway.jobs.domain.what_if import MoreNodes, OtherJob, QueuePlanRequest, changed_rows
from services.gateway.web.domain.errors import ApiError
from tests.unit.services.gateway.jobs.test_queue_reading import NOW, job, node, placement, runs

RUNNING, SEAT = runs("runs")
ROWS = QueueRows([node()], [RUNNING, placement("waits")], [SEAT], [job("comes", "validating")])


def codes(asked: QueuePlanRequest, rows: QueueRows = ROWS) -> dict[str, str]:
    view = view_queue(changed_rows(rows, asked), NOW)
    return {name: each.reason.code for name, each in view.explained.explanations.items()}


def test_nothing_changes_without_a_change() -> None:
    assert codes(QueuePlanRequest()) == {"comes": "no_capacity", "waits": "lane_order"}


def test_further_nodes_take_what_waits() -> None:
    more = QueuePlanRequest(add=(MoreNodes(like="a", nodes=2),))
    assert codes(more) == {"waits": "next_decision", "comes": "next_decision"}
    lost = QueueRows([node("lost")], ROWS.placements, ROWS.seats)
    assert codes(more, lost)["waits"] == "next_decision", "new ones are up"


def test_what_ran_on_a_removed_node_waits_again() -> None:
    asked = QueuePlanRequest(remove=("a",))
    assert codes(asked) == dict.fromkeys(("runs", "waits", "comes"), "no_node_up")
    replaced = QueuePlanRequest(remove=("a",), add=(MoreNodes(like="a"),))
    assert "next_decision" in codes(replaced).values(), "a node like the one removed"


def test_a_job_that_is_left_out_frees_its_slots() -> None:
    assert codes(QueuePlanRequest(jobs=(OtherJob(job_id="runs", left_out=True),))) == {
        "comes": "next_decision",
        "waits": "lane_order",
    }
    asked = QueuePlanRequest(jobs=(OtherJob(job_id="waits", left_out=True),))
    assert codes(asked) == {"comes": "no_capacity"}


def test_a_job_that_waits_may_have_other_slots_and_another_lane() -> None:
    asked = QueuePlanRequest(jobs=(OtherJob(job_id="waits", slots=2, lane="free"),))
    (row,) = [row for row in changed_rows(ROWS, asked).placements if row.id == "waits"]
    before = placement("waits")
    assert (row.slots, row.lane) == (2, "free")
    assert row.p50_ms == before.p50_ms * before.slots // 2
    assert codes(asked) == {"comes": "no_capacity", "waits": "gang_too_large"}


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        (QueuePlanRequest(add=(MoreNodes(like="b"),)), "add.0.like"),
        (QueuePlanRequest(remove=("a", "b")), "remove.1"),
        (QueuePlanRequest(jobs=(OtherJob(job_id="none"),)), "jobs.0.job_id"),
        (QueuePlanRequest(jobs=(OtherJob(job_id="runs", slots=2),)), "jobs.0"),
        (QueuePlanRequest(jobs=(OtherJob(job_id="comes", slots=2),)), "jobs.0"),
    ],
)
def test_a_change_of_nothing_says_where(asked: QueuePlanRequest, param: str) -> None:
    with pytest.raises(ApiError) as refused:
        changed_rows(ROWS, asked)
    assert refused.value.param == param
