"""A lease with two members: the fold and the closing of leases that today's plan does not make."""

from immutables import Map
from msgspec.structs import replace

from schemas.node import DeviceFault, NodeSeen, ReportDeviceFaults
from schemas.pool import (
    ConfirmFreed,
    Event,
    ForgetWork,
    LeaseGranted,
    ObserveNodes,
    ReportCheckpoint,
    UsageCredited,
    UsageSliced,
)
from schemas.reasons import device_fault, skipping
from schemas.training import SkippedCheckpoint
from services.scheduler.domain.pool import closing
from services.scheduler.domain.pool.state import JobRefund, Pool
from services.scheduler.domain.pool.usage import ChargedHour
from simulator.control_plane.samples import (
    MINUTE,
    POOL,
    SCORED,
    T0,
    TRAINED,
    checkpoint,
    node,
    request,
)
from tests.unit.services.scheduler.domain.pool.test_decide import (
    ALIVE,
    begun,
    end_of,
    exited,
    freed,
    pool,
    seen,
    token,
)
from tests.unit.services.scheduler.fold import Decider, names, of


def gang() -> Decider:
    """Nodes `a` and `b`, one slot each, run one lease of two members since T0."""
    decider = pool().accept(request(slots=2), node("a", "a-1", 1), node("b", "b-1", 1))
    return decider.accept(begun())


def member_freed(node_id: str) -> ConfirmFreed:
    return ConfirmFreed(token=token(), node_id=node_id, incarnation=f"{node_id}-1")


def test_members_are_freed_one_by_one_and_the_lease_goes_with_the_last() -> None:
    decider = gang()
    decider.at += 10 * MINUTE
    end = end_of(decider.when(exited(outcome="failed", cause="user")))
    assert (end.node_ids, end.used_gpu_ms) == (("a", "b"), 20 * MINUTE)
    assert names(decider.when(member_freed("a"))) == ["MemberFreed"]
    assert decider.when(member_freed("a")) == ()
    assert names(decider.when(request("ftjob-3"))) == ["PlacementQueued", "LeaseGranted"]
    assert sorted(decider.state[POOL].leases) == ["1", "2"]
    assert names(decider.when(member_freed("b"))) == ["MemberFreed"]
    assert sorted(decider.state[POOL].leases) == ["2"]
    assert decider.refolded() == decider.state


def test_a_gang_lives_as_long_as_every_member() -> None:
    decider = gang()
    decider.at += 10 * MINUTE
    decider.accept(seen(T0 + 10 * MINUTE))
    assert decider.state[POOL].leases["1"].alive_at == T0
    both = (
        NodeSeen(node_id="a", incarnation="a-1", last_seen=T0 + 9 * MINUTE, silent=False),
        NodeSeen(node_id="b", incarnation="b-1", last_seen=T0 + 8 * MINUTE, silent=False),
    )
    decider.accept(ObserveNodes(seen=both))
    assert decider.state[POOL].leases["1"].alive_at == T0 + 8 * MINUTE


def test_a_gang_that_loses_one_node_ends_and_keeps_the_slots_of_the_other() -> None:
    decider = gang()
    decider.at += 10 * MINUTE
    events = decider.when(node("b", "b-2", 1))
    assert (
        names(events)
        == [
            "UsageSliced",
            "UsageCredited",
            "PlacementClosed",
            "MemberFreed",
            "NodeRegistered",
        ][2 if not decider.state[POOL].leases["1"].used_gpu_ms else 0 :]
    )
    assert (end_of(events).outcome, end_of(events).ended_by) == ("lost", "node")
    assert of(decider.when(request("ftjob-2", slots=1)), LeaseGranted).members[0].node_id == "b"
    assert names(decider.when(member_freed("a"))) == ["MemberFreed"]


def test_money_c8_no_capture_is_later_than_the_end_so_no_credit_is_larger_than_the_bill() -> None:
    """Finding C8: an exit below an accepted capture, whose checkpoint is skipped later."""
    decider = pool().accept(node(), request(), begun())
    decider.at += 10 * MINUTE
    saved = checkpoint(10, captured_ms=9 * MINUTE)
    decider.accept(ReportCheckpoint(token=token(), incarnation=ALIVE, checkpoint=saved))
    end = end_of(decider.when(exited(outcome="failed", cause="platform", elapsed_ms=MINUTE)))
    assert (end.used_gpu_ms, end.billable_gpu_ms, end.lost_gpu_ms) == (9 * MINUTE, 9 * MINUTE, 0)


def test_a_member_that_is_free_before_the_first_one_reports_ends_nothing() -> None:
    decider = gang()
    decider.at += 10 * MINUTE
    assert names(decider.when(member_freed("b"))) == ["MemberFreed"]
    end = end_of(decider.when(exited(outcome="failed", cause="user", elapsed_ms=10 * MINUTE)))
    assert (end.outcome, end.used_gpu_ms, end.lost_gpu_ms) == ("failed", 20 * MINUTE, 0)
    assert names(decider.when(member_freed("a"))) == ["MemberFreed"]
    assert not decider.state[POOL].leases


def test_the_last_member_that_is_free_without_a_report_ends_the_gang() -> None:
    decider = gang()
    decider.accept(member_freed("b"))
    assert "PlacementClosed" in names(decider.when(member_freed("a")))


def test_a_failure_speaks_against_the_node_that_is_named() -> None:
    decider = gang()
    failed = exited(outcome="failed", cause="bad_node", elapsed_ms=MINUTE, faulty_node="b")
    end = end_of(decider.when(failed))
    assert (end.faulty_node, end.nodes_at_fault) == ("b", ("b",))
    assert [each.node_id for each in decider.state[POOL].failures["ftjob-1"]] == ["b"]
    other = gang().when(replace(failed, faulty_node="z"))
    assert end_of(other).nodes_at_fault == ("a", "b"), "it is none of the lease"


def test_both_nodes_of_a_gang_lost_together_end_it_once() -> None:
    decider = gang()
    decider.at += 10 * MINUTE
    silent = tuple(
        NodeSeen(node_id=name, incarnation=f"{name}-1", last_seen=T0 + MINUTE, silent=True)
        for name in ("a", "b")
    )
    events = decider.when(ObserveNodes(seen=silent))
    assert names(events).count("NodeLost") == 2
    end = end_of(events)
    assert (end.outcome, end.used_gpu_ms, end.lost_gpu_ms) == ("lost", 2 * MINUTE, 2 * MINUTE)


def metered(events: tuple[Event, ...]) -> list[tuple[int, int]]:
    """Tokens that slices bill and that credits give back, with the time of each."""
    return [
        (event.billable_gpu_ms, event.tokens)
        if isinstance(event, UsageSliced)
        else (-event.lost_gpu_ms, -event.lost_tokens)
        for event in events
        if isinstance(event, UsageSliced | UsageCredited)
    ]


def saved(step: int, minutes: int, attempt: int = 1, lease: int = 1) -> ReportCheckpoint:
    captured = checkpoint(step, attempt, minutes * MINUTE)
    return ReportCheckpoint(token=token(lease), incarnation=ALIVE, checkpoint=captured)


def test_money_b3_trained_tokens_are_billed_once_a_checkpoint_or_the_result_has_them() -> None:
    decider = pool().accept(node(), request(max_tokens=50_000), begun())
    decider.at += 10 * MINUTE
    decider.accept(saved(10, 9))
    ended = decider.when(exited(outcome="lost", elapsed_ms=10 * MINUTE))
    assert metered(ended) == [(10 * MINUTE, 10_000), (-MINUTE, 0)]
    again = request(attempt=2, max_tokens=50_000, checkpoints=(checkpoint(10, 1, 9 * MINUTE),))
    decider.accept(freed(), again, begun(2, loaded=checkpoint(10, 1, 9 * MINUTE).manifest_sha256))
    decider.at += 10 * MINUTE
    ended = decider.when(exited(2, outcome="succeeded", result=TRAINED, elapsed_ms=10 * MINUTE))
    assert metered(ended) == [(10 * MINUTE, TRAINED.tokens - 10_000)]
    assert decider.refolded() == decider.state
    given_back = decider.when(ForgetWork(job_id="ftjob-1", refund="platform_error"))
    assert sum(tokens for _, tokens in metered(given_back)) == -TRAINED.tokens
    assert sum(gpu_ms for gpu_ms, _ in metered(given_back)) == -19 * MINUTE


def test_money_b3_no_more_tokens_are_billed_than_the_hold_has() -> None:
    decider = pool().accept(node(), request(max_tokens=30_000), begun())
    decider.at += 10 * MINUTE
    decider.accept(saved(10, 5))
    ended = decider.when(exited(outcome="succeeded", result=TRAINED))
    assert sum(tokens for _, tokens in metered(ended)) == 30_000 < TRAINED.tokens


def test_money_b3_tokens_without_a_price_are_not_metered() -> None:
    decider = pool().accept(node(), request(), begun())
    decider.at += 10 * MINUTE
    decider.accept(saved(10, 5))
    ended = decider.when(exited(outcome="succeeded", result=TRAINED))
    assert metered(ended) == [(10 * MINUTE, 0)]


def test_money_b3_an_attempt_that_is_credited_entirely_is_billed_no_tokens() -> None:
    decider = pool().accept(node(), request(max_tokens=50_000), begun())
    decider.at += 10 * MINUTE
    decider.accept(saved(10, 9))
    ended = decider.when(exited(outcome="failed", cause="oom", elapsed_ms=10 * MINUTE))
    assert metered(ended) == [(10 * MINUTE, 10_000), (-10 * MINUTE, -10_000)]


def test_money_b3_tokens_of_an_unusable_checkpoint_are_given_back_and_billed_again() -> None:
    decider = pool().accept(node(), request(max_tokens=50_000), begun())
    decider.at += 10 * MINUTE
    decider.accept(saved(10, 4), saved(20, 9))
    decider.accept(exited(outcome="lost", elapsed_ms=10 * MINUTE), freed())
    older, newest = checkpoint(10, 1, 4 * MINUTE), checkpoint(20, 1, 9 * MINUTE)
    decider.accept(request(attempt=2, max_tokens=50_000, checkpoints=(newest, older)))
    unusable = SkippedCheckpoint(
        manifest_sha256=newest.manifest_sha256, reason=skipping("blob_missing")
    )
    started = decider.when(begun(2, loaded=older.manifest_sha256, skipped=(unusable,)))
    assert metered(started) == [(-5 * MINUTE, -10_000)]
    decider.at += 10 * MINUTE
    ended = decider.when(exited(2, outcome="succeeded", result=TRAINED, elapsed_ms=10 * MINUTE))
    assert metered(ended) == [(10 * MINUTE, TRAINED.tokens - 10_000)]


def test_a_whole_refund_has_one_line_for_each_lease_and_hour() -> None:
    """Found by seed 116 of the simulated control plane: tokens may be sliced apart from time, and a
    second line of one lease and hour in a record took the place of the first in the ledger.
    """
    lease = gang().state[POOL].leases["1"].ref
    hours = (
        ChargedHour(lease=lease, hour_utc=7, gpu_ms=0, tokens=10_000),
        ChargedHour(lease=lease, hour_utc=7, gpu_ms=MINUTE, tokens=30_000),
        ChargedHour(lease=lease, hour_utc=8, gpu_ms=2 * MINUTE),
    )
    charged = Pool(charged=Map({"ftjob-1": hours}))
    credits_given = [
        event
        for event in closing.settle(charged, "ftjob-1", JobRefund(cause="platform_error"))
        if isinstance(event, UsageCredited)
    ]
    assert [(each.hour_utc, each.lost_gpu_ms, each.lost_tokens) for each in credits_given] == [
        (8, 2 * MINUTE, 0),
        (7, MINUTE, 40_000),
    ]


def test_a_broken_device_of_one_member_speaks_against_that_node_alone() -> None:
    decider = gang()
    decider.at += MINUTE
    listed = (DeviceFault(device=0, reason=device_fault("xid")),)
    fault = ReportDeviceFaults(node_id="b", incarnation="b-1", faults=listed)
    end = end_of(decider.when(fault))
    assert (end.cause, end.node_ids, end.nodes_at_fault) == ("bad_node", ("a", "b"), ("b",))


def test_a_member_that_its_agent_does_not_list_speaks_against_that_node_alone() -> None:
    decider = gang()
    decider.at += MINUTE
    sight = NodeSeen(node_id="b", incarnation="b-1", last_seen=T0 + MINUTE, silent=False, leases=())
    end = end_of(decider.when(ObserveNodes(seen=(sight,))))
    assert (end.cause, end.nodes_at_fault) == ("platform", ("b",))


def test_first_hour2_u7_use_above_what_is_billed_at_most_is_on_no_bill() -> None:
    wanted = request(role="eval", max_gpu_ms=60 * MINUTE, billed_gpu_ms_max=4 * MINUTE)
    decider = pool().accept(wanted, node("a", "a-1", 1), begun())
    decider.at += 10 * MINUTE
    events = decider.when(exited(outcome="succeeded", result=SCORED))
    end = end_of(events)
    assert (end.outcome, end.used_gpu_ms, end.billable_gpu_ms) == (
        "succeeded",
        10 * MINUTE,
        4 * MINUTE,
    )
    slices = [event for event in events if isinstance(event, UsageSliced)]
    assert sum(each.billable_gpu_ms for each in slices) == 4 * MINUTE
