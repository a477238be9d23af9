"""The simulated agent: what it is assigned, and what it reports about it."""

from msgspec.structs import replace

from schemas.assignments import AssignedLease, AssignedNode, LeaseOrder
from schemas.node import NodeDescription
from schemas.pool import LeaseMember, LeaseRef, Token
from simulator.control_plane.agent import STEPS_PER_CHECKPOINT, LeaseDiaries, SimAgent, SimAttempt
from simulator.control_plane.samples import POOL, WORK, checkpoint, request

NODE = NodeDescription(
    node_id="a", incarnation="a-1", slots=2, device="cpu", memory_bytes=8_000_000_000
)
LEASE = LeaseRef(
    token=Token(pool=POOL, lease=7),
    tenant="acme",
    job_id="ftjob-1",
    attempt=1,
    role="train",
    lane="standard",
    price_version="2026-11",
)
MEMBER = LeaseMember(node_id="a", incarnation="a-1", slots=1, devices=(0,))
OLD, NEW = checkpoint(10), checkpoint(20)


ORDER = LeaseOrder(
    lease=LEASE,
    members=(MEMBER,),
    placement=request(checkpoints=(NEW, OLD)).placement,
    work=WORK,
)
ASSIGNED = AssignedLease(
    pool=POOL, node_id="a", offset=1, incarnation="a-1", lease=7, target="run", order=ORDER
)


def running(diaries: LeaseDiaries) -> tuple[SimAgent, SimAttempt]:
    agent = SimAgent(NODE, diaries)
    agent.take(ASSIGNED)
    (attempt,) = agent.reconcile()
    return agent, attempt


def test_an_attempt_reports_what_its_diary_says() -> None:
    diaries: LeaseDiaries = {}
    _, attempt = running(diaries)
    started = attempt.start(lambda: 1_000, lambda: len(diaries) > 1)
    attempt.step += STEPS_PER_CHECKPOINT
    captured = attempt.capture(4_000)
    ended = attempt.exit(9_000, "succeeded")
    assert captured is not None
    assert (started.start.loaded, started.start.loaded_step) == (NEW.manifest_sha256, 20)
    assert captured.checkpoint.captured_ms == 3_000
    assert (ended.elapsed_ms, ended.outcome) == (8_000, "succeeded")
    diary = diaries["a-1", 7]
    assert (diary.began_ms, diary.exited_ms) == (1_000, 9_000)
    assert list(diary.captured.values()) == [{3_000}]


def test_it_begins_at_the_newest_checkpoint_that_can_be_read() -> None:
    _, attempt = running({})
    unreadable = iter((True, False))
    started = attempt.start(lambda: 0, lambda: next(unreadable))
    assert started.start.loaded == OLD.manifest_sha256
    assert [skipped.manifest_sha256 for skipped in started.start.skipped] == [NEW.manifest_sha256]


def test_targets_only_harden_and_a_freed_lease_is_run_no_more() -> None:
    agent, attempt = running({})
    agent.take(replace(ASSIGNED, order=None, target="drain"))
    assert attempt.harden(agent.target_of(attempt))
    assert not attempt.harden("drain")
    assert attempt.harden("kill")
    agent.take(AssignedNode(pool=POOL, node_id="a", offset=2, incarnation="a-1"))
    assert agent.reconcile() == ()


def test_an_agent_that_leaves_takes_nothing_new() -> None:
    agent = SimAgent(NODE, {})
    agent.take(ASSIGNED)
    assert agent.reconcile(takes_new=False) == ()


def test_a_heartbeat_lists_leases_and_how_long_each_stands_still() -> None:
    agent, attempt = running({})
    attempt.start(lambda: 0, lambda: False)
    attempt.still_since_ms = 5_000
    beat = agent.heartbeat(12_000)
    assert (beat.leases, beat.idle_ms) == ((7,), (7_000,))
