"""Rows as the planner gets them."""

from msgspec.structs import replace

from schemas.node import Seat
from schemas.reasons import cordoning
from services.gateway.jobs.domain.queue_view import QueueRows, view_queue
from tests.unit.services.gateway.jobs.test_queue_reading import (
    HOUR,
    NOW,
    job,
    node,
    placement,
    runs,
)
from tunery.plan.scheduling.expectations import ANY_MOMENT_MS


def test_slots_of_what_has_ended_are_held_until_they_are_free() -> None:
    _, seat = runs("ended")
    view = view_queue(QueueRows([node()], [placement("j")], [seat]), NOW)
    (explanation,) = view.explained.explanations.values()
    assert explanation.reason.code == "no_capacity"
    assert explanation.earliest == NOW + ANY_MOMENT_MS


def test_only_nodes_that_are_up_have_slots() -> None:
    cordoned = replace(node(), cordon=cordoning("operator"))
    for row in (node("lost"), cordoned, replace(node(), joining=True)):
        view = view_queue(QueueRows([row], [placement("j")], []), NOW)
        assert view.explained.explanations["j"].reason.code == "no_node_up"


def test_bound_seats_barred_nodes_and_saved_work_reach_the_planner() -> None:
    row, seat = runs("runs")
    row = replace(row, captured_ms=60_000, ends_by=NOW + 1_000)
    waits = [placement("bound", bound=(Seat(node_id="a", slots=1),)), placement("b", barred=("a",))]
    view = view_queue(QueueRows([node()], [row, *waits], [seat]), NOW)
    running = view.state.running["1"]
    assert (running.saved_at, running.ends_by) == (NOW - HOUR // 2 + 60_000, NOW + 1_000)
    codes = {name: each.reason.code for name, each in view.explained.explanations.items()}
    assert codes == {"bound": "slots_being_freed", "b": "excluded_nodes"}


def test_a_job_whose_file_is_being_validated_waits_as_well() -> None:
    unknown = job("j", "validating", hold=None)
    view = view_queue(QueueRows([node()], [], [], [unknown]), NOW)
    explanation = view.explanation("j")
    assert explanation is not None
    assert (explanation.position, explanation.earliest) == (1, NOW)


def test_review2_q1_readers_know_since_when_a_job_waits_and_what_makes_way_for_it() -> None:
    """Submissions and waits are those that the pool plans with."""
    row, seat = runs("runs")
    waits = placement("waits", queued_at=NOW - HOUR)
    state = view_queue(QueueRows([node()], [row, waits], [seat]), NOW).state
    assert state.queue.requests["waits"].waits_since == NOW - HOUR
    assert state.running["1"].submitted_at == row.submitted_at
