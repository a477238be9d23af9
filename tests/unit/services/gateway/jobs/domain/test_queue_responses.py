"""The whole queue as operators get it."""

from msgspec.structs import replace

from schemas.pool import Role
from schemas.training import NodeConstraints
from services.gateway.jobs.domain.queue_responses import PoolQueueResponse, pool_queue_response
from services.gateway.jobs.domain.queue_view import QueueRows, view_queue
from services.gateway.views.tables.jobs import AttemptTimeRow
from tests.unit.services.gateway.jobs.test_queue_reading import (
    HOUR,
    NOW,
    job,
    node,
    placement,
    runs,
)


def shown(rows: QueueRows, now: int = NOW) -> PoolQueueResponse:
    return pool_queue_response("default", rows, view_queue(rows, NOW), now)


def test_slots_leases_and_expected_ends_are_those_of_the_planner() -> None:
    row, seat = runs("runs")
    queue = shown(QueueRows([node(slots=2)], [row, placement("big", slots=2)], [seat]))
    (machine,), (lease,), (waits,) = queue.nodes, queue.leases, queue.waiting
    assert (machine.id, machine.slots, machine.free) == ("a", 2, 1)
    assert (lease.job_id, lease.ends, lease.ends_by) == (
        "runs",
        (NOW + 3 * HOUR // 2) // 1_000,
        None,
    )
    assert (waits.job_id, waits.code, waits.slots) == ("big", "no_capacity", 2)
    assert queue.next.reservation is not None
    assert queue.next.reservation.job_id == "big"
    assert [(seat.node, seat.slots) for seat in queue.next.reservation.seats] == [("a", 2)]


def test_slots_by_kind_say_how_scarce_they_are() -> None:
    """Free, held and asked for; and what was taken away of late."""
    row, seat = runs("runs")
    spot = replace(node(slots=4, node_id="b"), spot=True, interrupted_at=NOW - HOUR)
    gone = replace(spot, id="c", state="lost")
    former = replace(spot, id="d", interrupted_at=NOW - 25 * HOUR)
    never = placement("never", slots=2, constraints=NodeConstraints(spot=False))
    waits = [placement("big", slots=8), never, placement("j", slots=3)]
    rows = QueueRows([node(slots=2), spot, gone, former], [row, *waits], [seat])
    kinds = {each.price_class: each for each in shown(rows).kinds}
    fixed, on_spot = kinds["on_demand"], kinds["spot"]
    assert (fixed.nodes, fixed.slots, fixed.held, fixed.free) == (1, 2, 1, 1)
    assert (fixed.asked, fixed.interrupted) == (13, 0)
    assert (on_spot.nodes, on_spot.slots, on_spot.held, on_spot.free) == (2, 8, 0, 8)
    assert (on_spot.asked, on_spot.interrupted) == (11, 2)


def test_calibration_is_the_share_of_what_took_no_longer_than_expected() -> None:
    """By role. What began at a checkpoint did not do all of its work."""

    def ended(used_gpu_ms: int, role: Role = "train", first_step: int = 0) -> AttemptTimeRow:
        return AttemptTimeRow(
            id=f"j/{used_gpu_ms}",
            pool="default",
            sequence=used_gpu_ms,
            role=role,
            slots=2,
            p50_ms=100,
            p90_ms=150,
            first_step=first_step,
            used_gpu_ms=used_gpu_ms,
        )

    rows = [ended(200), ended(300), ended(301), ended(1, first_step=9), ended(201, "eval")]
    evals, trainings = shown(QueueRows([], [], [], ended=rows)).calibration
    assert (trainings.attempts, trainings.within_p50_pct) == (3, 33.3)
    assert trainings.within_p90_pct == 66.7
    assert (evals.attempts, evals.within_p50_pct, evals.within_p90_pct) == (1, 0, 100)
    assert shown(QueueRows([], [], [])).calibration == []


def test_a_lease_that_has_ended_has_no_expected_end() -> None:
    _, seat = runs("gone")
    (lease,) = shown(QueueRows([node()], [], [seat])).leases
    assert (lease.ends, lease.ends_by) == (None, None)


def test_an_old_forecast_has_no_time_in_the_past() -> None:
    row, seat = runs("runs")
    now = NOW + 24 * HOUR
    queue = shown(QueueRows([node()], [row, placement("j")], [seat]), now)
    (waits,), (lease,) = queue.waiting, queue.leases
    assert queue.next.reservation is not None
    for moment in (waits.eta, waits.eta_latest, lease.ends, queue.next.reservation.at):
        assert moment is not None
        assert moment * 1_000 >= now


def test_decisions_name_who_starts_and_who_is_stopped_for_whom() -> None:
    row, seat = runs("victim")
    row = replace(row, lane="free", p50_ms=90 * HOUR, p90_ms=90 * HOUR, captured_ms=HOUR // 2)
    busy, other_seat = runs("busy", 2)  # without it premium would have its cap
    rows = QueueRows(
        [node(), node(node_id="b"), node(node_id="c")],
        [row, busy, placement("premium", lane="premium"), placement("other", 2, lane="premium")],
        [replace(seat, lane="free"), replace(other_seat, node_id="c")],
    )
    decisions = shown(rows).next
    assert [start.job_id for start in decisions.starts] == ["premium"]
    assert [(stop.job_id, stop.stops) for stop in decisions.preemptions] == [("other", ["victim"])]


def test_a_job_that_prepares_its_inputs_is_no_next_decision() -> None:
    coming = job("coming")
    queue = shown(QueueRows([node()], [], [], [coming]))
    assert queue.next.starts == []
    (waits,) = queue.waiting
    assert waits.job_id == "coming"
