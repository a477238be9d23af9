"""Nodes that fail under jobs (finding A9): back-off, exclusion, cordons."""

from schemas import errors
from schemas.envelope import Rejected, Tick
from schemas.job import JobEnded, PlacementWanted
from schemas.node import (
    BackOffEnded,
    CordonNode,
    DeviceFault,
    DeviceFaultsChanged,
    NodeCordoned,
    NodeUncordoned,
    ReportDeviceFaults,
    UncordonNode,
)
from schemas.pool import (
    ConfirmFreed,
    LeaseGranted,
    LeaseKilled,
    RegisterNode,
    ReportExit,
    ReportStarted,
)
from schemas.reasons import DeviceFaultCode, cordoning, device_fault, ending
from schemas.training import AttemptStart, FailureCause
from services.scheduler.app import POOLS
from services.scheduler.domain.pool.faults import (
    BACK_OFF_MS,
    EXCLUDED_MS,
    FAILED_JOBS_MAX,
    barred_nodes,
)
from services.scheduler.domain.pool.state import Lease, Pool, free_devices, open_leases
from simulator.control_plane.samples import MINUTE, POOL, T0, node, request, submit
from tests.ticks import next_tick
from tests.unit.services.scheduler.domain.pool.test_decide import (
    ALIVE,
    begun,
    close,
    end_of,
    exited,
    freed,
    member_of,
    pool,
    running,
    seen,
)
from tests.unit.services.scheduler.fold import Decider, of
from tests.unit.services.scheduler.joined import TENANT, Joined

NODES = {"good": node("good", "good-1", 4), "broken": node("broken", "broken-1", 4)}


def pool_of(joined: Joined) -> Pool:
    pool: Pool = joined.pool.state[POOL]
    return pool


def leases_on(joined: Joined, node_id: str) -> list[Lease]:
    return [lease for lease in open_leases(pool_of(joined)) if lease.node_ids == (node_id,)]


def start(joined: Joined, lease: Lease) -> None:
    begun = AttemptStart(loaded=None, loaded_step=0, skipped=(), total_steps=40)
    incarnation = lease.members[0].incarnation
    joined.to_pool(ReportStarted(token=lease.ref.token, incarnation=incarnation, start=begun))


def fail(joined: Joined, lease: Lease, cause: FailureCause = "platform") -> None:
    """The attempt ends ten seconds later, and its slot is free."""
    joined.wait(10_000)
    member = lease.members[0]
    exited = ReportExit(
        token=lease.ref.token,
        incarnation=member.incarnation,
        outcome="failed",
        elapsed_ms=0,
        cause=cause,
    )
    freed = ConfirmFreed(
        token=lease.ref.token, node_id=member.node_id, incarnation=member.incarnation
    )
    joined.to_pool(exited)
    joined.to_pool(freed)


def one_job(*nodes: RegisterNode) -> Joined:
    """One job on node `a`, which fails before its start; these nodes are there as well."""
    joined = Joined(T0)
    for other in nodes:
        joined.to_pool(other)
    return joined


def test_sched_a9_one_broken_node_fails_none_of_forty_jobs() -> None:
    joined = Joined(T0)
    start(joined, joined.lease)
    for registered in NODES.values():
        joined.to_pool(registered)
    for number in range(4):
        joined.send("job", TENANT, submit(f"ftjob-long-{number}", 100_000))
    (full,) = {lease.node_ids for lease in open_leases(pool_of(joined))} - {("a",)}
    for lease in leases_on(joined, full[0]):
        start(joined, lease)
    (broken,) = NODES.keys() - set(full)
    for number in range(40):
        joined.send("job", TENANT, submit(f"ftjob-{number:02}", 20_000))
    failed = 0
    while leases := leases_on(joined, broken):
        for lease in leases:
            fail(joined, lease)
            failed += 1
    assert not [event for event in joined.events if isinstance(event, JobEnded)]
    assert failed == FAILED_JOBS_MAX + 3, "those that ran when it was cordoned fail as well"
    cordoned = of(tuple(joined.events), NodeCordoned)
    assert (cordoned.node_id, cordoned.reason) == (
        broken,
        cordoning("jobs_failed", jobs=FAILED_JOBS_MAX),
    )
    assert len(pool_of(joined).waiting) == 40


def test_bad_input_a_node_that_lies_about_its_gpus_is_cordoned_and_fails_no_job() -> None:
    """The node reports 64 slots and has none: whatever is started there fails at once."""
    joined = Joined(T0)
    start(joined, joined.lease)
    joined.to_pool(node("good", "good-1", 4))
    for number in range(4):
        joined.send("job", TENANT, submit(f"ftjob-long-{number}", 100_000))
    for lease in leases_on(joined, "good"):
        start(joined, lease)
    joined.to_pool(node("liar", "liar-1", 64))
    for number in range(80):
        joined.send("job", TENANT, submit(f"ftjob-{number:02}", 20_000))
    while leases := leases_on(joined, "liar"):
        for lease in leases:
            fail(joined, lease)
    cordoned = of(tuple(joined.events), NodeCordoned)
    assert (cordoned.node_id, cordoned.reason.code) == ("liar", "jobs_failed")
    assert not [event for event in joined.events if isinstance(event, JobEnded)]
    assert len(pool_of(joined).waiting) == 80
    assert joined.pool.refolded() == joined.pool.state


def test_sched_a9_an_attempt_that_fails_before_a_checkpoint_excludes_its_node() -> None:
    joined = one_job(node("b", "b-1", 1))
    fail(joined, joined.lease)
    wanted = [event for event in joined.events if isinstance(event, PlacementWanted)]
    assert wanted[-1].placement.excluded_nodes == ("a",)
    assert joined.lease.node_ids == ("b",)


def test_sched_a9_after_a_checkpoint_only_bad_node_excludes() -> None:
    joined = one_job(node("b", "b-1", 1))
    joined.start()
    joined.wait(60_000)
    joined.save(10, 30_000)
    fail(joined, joined.lease)
    wanted = [event for event in joined.events if isinstance(event, PlacementWanted)]
    assert wanted[-1].placement.excluded_nodes == ()


def test_sched_a9_the_only_node_is_met_again_after_a_back_off_that_grows() -> None:
    joined = one_job()
    for back_off_ms in BACK_OFF_MS:
        fail(joined, joined.lease)
        assert not open_leases(pool_of(joined))
        (waiter,) = pool_of(joined).waiting.values()
        assert barred_nodes(pool_of(joined), waiter.placement.job_id) == ("a",)
        due = next_tick(POOLS, joined.pool.state)
        assert due is not None
        failed_at = joined.pool.at
        assert due[0] == failed_at + back_off_ms
        joined.wait(back_off_ms)
        joined.to_pool(Tick())
        assert joined.lease.node_ids == ("a",)
    assert sum(isinstance(event, BackOffEnded) for event in joined.events) == len(BACK_OFF_MS)
    fail(joined, joined.lease)
    assert joined.end.outcome == "failed"
    assert joined.pool.refolded() == joined.pool.state


def test_sched_a9_failures_cordon_at_most_half_of_the_nodes() -> None:
    """Where all nodes fail it is not the nodes: an outage of storage must not stop the pool."""
    joined = Joined(T0)
    for number in range(12):
        joined.send("job", TENANT, submit(f"ftjob-{number:02}x", 20_000))
    for name in ("b", "c", "d"):
        joined.to_pool(node(name, f"{name}-1", 1))
    while leases := open_leases(pool_of(joined)):
        fail(joined, leases[0])
    cordoned = [event for event in joined.events if isinstance(event, NodeCordoned)]
    assert len(cordoned) == 2


def test_a_checkpoint_clears_the_record_of_a_node() -> None:
    joined = one_job()
    fail(joined, joined.lease)
    assert pool_of(joined).nodes["a"].failed_jobs == ("ftjob-1",)
    joined.wait(BACK_OFF_MS[0])
    joined.to_pool(Tick())
    joined.start()
    joined.wait(60_000)
    joined.save(10, 30_000)
    assert pool_of(joined).nodes["a"].failed_jobs == ()


def test_an_operator_cordons_a_node_and_a_restart_does_not_uncordon_it() -> None:
    joined = one_job()
    joined.exit("preempted", 0)
    joined.to_pool(CordonNode(node_id="a"))
    joined.to_pool(CordonNode(node_id="a"))
    joined.to_pool(node("a", "a-2", 1))
    cordons = [event.reason for event in joined.events if isinstance(event, NodeCordoned)]
    assert cordons == [cordoning("operator")] * 2, "a registration says it again"
    assert not pool_of(joined).nodes["a"].is_grantable
    assert not open_leases(pool_of(joined))[1:]
    joined.to_pool(UncordonNode(node_id="a"))
    assert of(tuple(joined.events), NodeUncordoned).node_id == "a"
    assert pool_of(joined).nodes["a"].is_grantable


def test_an_unknown_node_is_not_cordoned() -> None:
    joined = one_job()
    (refused,) = joined.pool.when(CordonNode(node_id="z"))
    assert refused.reason.code == "node_missing"


def test_a_replica_may_have_an_excluded_node_again_after_a_while() -> None:
    """The other node holds the other replica, which has no end."""
    decider = pool().accept(node(), request("ftjob-2", slots=2), begun(), node("b", "b-1"))
    decider.accept(request(role="serve", excluded_nodes=("b",)))
    until = T0 + EXCLUDED_MS
    assert dict(decider.state[POOL].excluded_until) == {"ftjob-1": until}
    decider.at = until - 1
    assert decider.when(Tick()) == ()
    decider.at = until
    events = decider.when(Tick())
    assert of(events, BackOffEnded) == BackOffEnded(job_id="ftjob-1", node_ids=("b",))
    assert member_of(events).node_id == "b"
    assert not decider.state[POOL].excluded_until
    assert decider.refolded() == decider.state


def test_what_waits_no_more_has_no_exclusion_that_could_end() -> None:
    decider = pool().accept(node(), request("ftjob-2", slots=2), node("b", "b-1"))
    decider.accept(request(role="serve", excluded_nodes=("b",)), close("drain"))
    assert not decider.state[POOL].excluded_until
    decider.accept(request("ftjob-3", excluded_nodes=("b",)))
    assert not decider.state[POOL].excluded_until, "a job waits: the others end"


def faults(*reasons: tuple[int, DeviceFaultCode], incarnation: str = ALIVE) -> ReportDeviceFaults:
    """What the agent of node `a` says of its devices."""
    listed = tuple(
        DeviceFault(device=number, reason=device_fault(code)) for number, code in reasons
    )
    return ReportDeviceFaults(node_id="a", incarnation=incarnation, faults=listed)


def free_of(decider: Decider) -> list[int]:
    state: Pool = decider.state[POOL]
    return free_devices(state.nodes["a"], state.leases.values())


def test_devices_one_that_breaks_ends_its_lease_and_the_others_go_on() -> None:
    """What runs on it is killed, credited and billed as any fault of the platform is."""
    decider = pool().accept(node("a", ALIVE, 8), request("f"), begun(), request("s1"), begun(2))
    decider.at += 10 * MINUTE
    decider.when(seen(decider.at))
    events = decider.when(faults((0, "xid"), (5, "ecc")))
    changed, killed = of(events, DeviceFaultsChanged), of(events, LeaseKilled)
    assert [fault.device for fault in changed.faults] == [0, 5]
    assert (killed.lease.job_id, killed.ended_by) == ("f", "node")
    end = end_of(events)
    assert (end.outcome, end.cause, end.ended_by) == ("failed", "bad_node", "node")
    assert end.reason == ending("device_failed", device=0, fault="xid")
    assert end.used_gpu_ms == end.lost_gpu_ms > 0, "it had no checkpoint"
    assert [lease.ref.job_id for lease in open_leases(decider.state[POOL])] == ["s1"]
    decider.accept(freed())
    assert free_of(decider) == [2, 3, 4, 6, 7]


def test_devices_with_a_fault_get_no_new_lease_until_it_is_gone() -> None:
    decider = pool().accept(node("a", ALIVE, 3), faults((0, "throttled"), (2, "partitioned")))
    assert member_of(decider.when(request("f"))).devices == (1,)
    assert not [each for each in decider.when(request("s1")) if isinstance(each, LeaseGranted)]
    assert decider.when(faults((0, "throttled"), (2, "partitioned"))) == (), "said already"
    events = decider.when(faults((2, "partitioned")))
    assert member_of(events).devices == (0,), "the job that waited has it in the same decision"


def test_devices_that_are_slowed_down_finish_what_runs_on_them() -> None:
    decider = running()
    events = decider.when(faults((0, "throttled"), (1, "disk_full")))
    assert [type(event) for event in events] == [DeviceFaultsChanged]
    assert free_of(decider) == []
    decider.accept(request("f"), exited(outcome="succeeded"), freed(), faults())
    assert len(open_leases(decider.state[POOL])) == 1, "what waited has begun"


def test_devices_of_a_lease_of_several_end_together() -> None:
    decider = pool().accept(node("a", ALIVE, 8), request("f", slots=4), begun())
    assert end_of(decider.when(faults((3, "unreachable")))).reason.params["device"] == 3
    decider.accept(request("s1", slots=2))
    decider.accept(freed())
    leases = decider.state[POOL].leases.values()
    assert [lease.members[0].devices for lease in leases] == [(4, 5)]
    assert free_of(decider) == [0, 1, 2, 6, 7]


def test_devices_that_break_say_nothing_against_their_node() -> None:
    """Three jobs that failed on it in a row would have it cordoned: the rest goes on."""
    decider = pool().accept(node("a", ALIVE, 4))
    broken: tuple[tuple[int, DeviceFaultCode], ...] = ()
    for number, job_id in enumerate(("f", "s1", "s2")):
        decider.accept(request(job_id), begun(number + 1))
        broken = (*broken, (number, "ecc"))
        decider.accept(faults(*broken), freed(number + 1))
    known = decider.state[POOL].nodes["a"]
    assert (known.failed_jobs, known.cordon) == ((), None)
    assert member_of(decider.when(request("p"))).devices == (3,)


def test_devices_are_judged_anew_by_each_incarnation_and_by_no_former_one() -> None:
    decider = pool().accept(node("a", ALIVE, 2), faults((0, "xid")))
    former = decider.when(faults((1, "xid"), incarnation="a-0"))
    assert of(former, Rejected).code == errors.STALE_TOKEN
    decider.accept(node("a", "a-2", 2))
    assert free_of(decider) == [0, 1]


def test_devices_without_any_that_works_are_no_node_to_wait_for_and_come_back() -> None:
    decider = pool().accept(node("a", ALIVE, 2), faults((0, "disk_full"), (1, "disk_full")))
    assert not [each for each in decider.when(request("f")) if isinstance(each, LeaseGranted)]
    assert member_of(decider.when(faults((1, "disk_full")))).devices == (0,)
