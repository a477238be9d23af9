"""`pool`: nodes, leases, usage; a drained lease, a lost node, a kill."""

from typing import Any

from msgspec.structs import replace

from schemas.account import Lane
from schemas.enrolment import EnrolNode, InviteNode, RecordNodeKeys, RevokeInvitation
from schemas.envelope import Source, Tick
from schemas.lease_keys import RecordLeaseKeys, RequestLeaseKeys
from schemas.node import (
    CordonNode,
    DeviceFault,
    DrainNode,
    ForgetNode,
    JoinNode,
    LeaseSeen,
    LeaveNode,
    NodeDescription,
    NodeSeen,
    NoticeNode,
    PlanningDeferred,
    ReportDeviceFaults,
    ResizeNode,
    UncordonNode,
    WarnNode,
    WithdrawNodeKeys,
)
from schemas.pool import (
    CloseMode,
    ClosePlacement,
    ClusterWait,
    ConfirmFreed,
    EndAuthor,
    EndRequest,
    ForgetWork,
    LeaseDraining,
    LeaseGranted,
    ObserveNodes,
    Placement,
    PlacementQueued,
    RegisterNode,
    ReportCheckpoint,
    ReportExit,
    ReportStarted,
    ReportWait,
    RequestPlacement,
    RetireNode,
    Token,
)
from schemas.reasons import device_fault, ending, skipping
from schemas.training import (
    AttemptOutcome,
    AttemptStart,
    BlobFile,
    Checkpoint,
    ExpectedTime,
    NodeConstraints,
    SkippedCheckpoint,
    TrainWork,
    WorkDescription,
    work_id_of,
)
from schemas.units import HOUR_MS
from schemas.works import DescribeWork
from tests.histories.recorder import BEGAN, Recorder
from tests.histories.stories.dataset import PREPARED
from tests.histories.stories.job import HYPER, TRAINED
from tests.histories.stories.model import BASE, FILE

POOL = "default"
MINUTE_MS = 60_000
ALLOWS_SPOT = NodeConstraints(spot=True)
WORK = TrainWork(
    base_id=BASE.base_id,
    base_sha256=BASE.sha256,
    base_path=BASE.path,
    prepared=PREPARED,
    hyper=HYPER,
)


def node(node_id: str, incarnation: int, slots: int = 1) -> RegisterNode:
    described = NodeDescription(
        node_id=node_id,
        incarnation=f"{node_id}-{incarnation}",
        slots=slots,
        device="cpu",
        memory_bytes=8_000_000_000,
        fabric=True,
    )
    return RegisterNode(node=described)


def describe(number: int) -> DescribeWork:
    described = WorkDescription(job_id=f"ftjob-{number}", work_id=work_id_of(WORK), work=WORK)
    return DescribeWork(tenant="acme", description=described)


def request(
    number: int,
    attempt: int = 1,
    checkpoints: tuple[Checkpoint, ...] = (),
    constraints: NodeConstraints | None = None,
) -> Any:
    placement = Placement(
        tenant="acme",
        job_id=f"ftjob-{number}",
        attempt=attempt,
        role="train",
        lane="standard",
        slots=1,
        max_gpu_ms=10 * HOUR_MS,
        price_version="2026-11",
        work_id=work_id_of(WORK),
        checkpoints=checkpoints,
        excluded_nodes=(),
        first_submitted_at=BEGAN,
        p50_ms=HOUR_MS,
        p90_ms=10 * HOUR_MS,
        device="cpu",
        memory_bytes=2_000_000_000,
        preemptions=attempt - 1,
        constraints=constraints,
    )
    return RequestPlacement(placement=placement)


def token_of(events: tuple[Any, ...]) -> Token:
    (granted,) = (event for event in events if isinstance(event, LeaseGranted))
    return granted.lease.token


def started(token: Token, node_id: str, step: int = 0, skipped: int = 0) -> ReportStarted:
    reason = skipping("blob_corrupt")
    start = AttemptStart(
        loaded="8" * 64 if step else None,
        loaded_step=step,
        skipped=(SkippedCheckpoint(manifest_sha256="7" * 64, reason=reason),) * skipped,
        total_steps=40,
    )
    return ReportStarted(token=token, incarnation=f"{node_id}-1", start=start)


def checkpoint(step: int, attempt: int = 1) -> Checkpoint:
    return Checkpoint(
        attempt=attempt,
        step=step,
        epoch_ppm=step * 50_000,
        tokens=900 * step,
        manifest_sha256="8" * 64,
        files=(BlobFile(name="state", blob="t/acme/ckpt/8", sha256="9" * 64, bytes=5), FILE),
        captured_ms=MINUTE_MS,
    )


def exited(story: Recorder, token: Token, node_id: str, outcome: AttemptOutcome, ms: int) -> Any:
    failed = outcome == "failed"
    return story.when(
        ReportExit(
            token=token,
            incarnation=f"{node_id}-1",
            outcome=outcome,
            elapsed_ms=ms,
            cause="user" if failed else None,
            detail=story.seal("the script of the night shift says: no") if failed else None,
            result=TRAINED if outcome == "succeeded" else None,
        )
    )


def seen(story: Recorder, node_id: str, *, silent: bool = False, after_ms: int = 1_000) -> Any:
    observed = NodeSeen(
        node_id=node_id,
        incarnation=f"{node_id}-1",
        last_seen=story.at if silent else story.at + after_ms,
        silent=silent,
    )
    return story.when(ObserveNodes(seen=(observed,)), after_ms=after_ms)


def freed(token: Token, node_id: str) -> ConfirmFreed:
    return ConfirmFreed(token=token, node_id=node_id, incarnation=f"{node_id}-1")


def close(attempt: int, mode: CloseMode, ended_by: EndAuthor = "tenant") -> ClosePlacement:
    reason = ending("preempted" if ended_by == "scheduler" else "paused")
    request = EndRequest(attempt=attempt, mode=mode, ended_by=ended_by, reason=reason)
    return ClosePlacement(job_id="ftjob-1", request=request)


def drained_and_succeeded(story: Recorder) -> None:
    """One slot, two jobs: the second waits until the first was drained; over two hours."""
    story.when(node("n1", 1))
    story.when(describe(1))
    story.when(describe(2))
    first = token_of(story.when(request(1)))
    for _ in range(2):
        story.when(request(2), source=Source("job", 3, 0, 9, 0))
    story.when(started(first, "n1"))
    story.when(
        ReportCheckpoint(token=first, incarnation="n1-1", checkpoint=checkpoint(10)),
        after_ms=MINUTE_MS,
    )
    seen(story, "n1", after_ms=HOUR_MS)
    story.when(close(1, "drain"))
    exited(story, first, "n1", "preempted", HOUR_MS + 2 * MINUTE_MS)
    second = token_of(story.when(freed(first, "n1")))
    story.when(started(second, "n1"))
    exited(story, second, "n1", "succeeded", 5_000)
    exited(story, second, "n1", "failed", 5_000)  # too late: the first fact won
    story.when(freed(second, "n1"))
    story.when(RetireNode(node_id="n1", incarnation="n1-1"))


def lost_and_killed(story: Recorder) -> None:
    """A node falls silent, its job goes on elsewhere, and is killed there."""
    story.when(node("n1", 1))
    for number in (1, 3, 4):
        story.when(describe(number))
    first = token_of(story.when(request(1)))
    story.when(node("n2", 1))
    story.when(started(first, "n1"))
    story.when(ReportCheckpoint(token=first, incarnation="n1-1", checkpoint=checkpoint(10)))
    seen(story, "n1", after_ms=10 * MINUTE_MS)
    seen(story, "n1", silent=True, after_ms=MINUTE_MS)
    second = token_of(story.when(request(1, 2, (checkpoint(10),))))
    story.when(started(second, "n2", 10, skipped=1))
    seen(story, "n2", after_ms=5 * MINUTE_MS)
    story.when(close(2, "kill", "scheduler"))
    exited(story, second, "n2", "preempted", 6 * MINUTE_MS)
    story.when(freed(second, "n2"))
    third = token_of(story.when(request(3)))
    story.when(started(third, "n2"))
    exited(story, third, "n2", "failed", 7_000)
    story.when(freed(third, "n2"))
    story.when(request(4))
    story.when(Tick(), after_ms=2 * HOUR_MS)  # it never reported its start
    story.when(node("n2", 2))
    for number in (1, 3, 4):
        story.when(ForgetWork(job_id=f"ftjob-{number}"))


def nodes_that_fail_and_leave(story: Recorder) -> None:
    """A node joins, fails three jobs and is cordoned; observations take two records; it leaves."""
    story.when(node("n2", 1))
    story.when(RegisterNode(node=node("n1", 1, 3).node, joins=True))
    for number in (1, 3, 4, 5):
        story.when(describe(number))
    story.when(request(5))
    for number in (1, 3, 4):
        story.when(request(number))
    granted = story.when(JoinNode(node_id="n1", incarnation="n1-1"))
    tokens = [event.lease.token for event in granted if isinstance(event, LeaseGranted)]
    for token in tokens:
        story.when(
            ReportExit(
                token=token, incarnation="n1-1", outcome="failed", elapsed_ms=0, cause="platform"
            )
        )
    for token in tokens:
        story.when(freed(token, "n1"))
    story.when(Tick(), after_ms=2 * MINUTE_MS)  # the back-offs have ended
    story.when(CordonNode(node_id="n2"))
    for node_id in ("n1", "n2"):
        story.when(UncordonNode(node_id=node_id))
    listed = tuple(LeaseSeen(lease=number, elapsed_ms=0) for number in range(100, 1_500))
    sights = [
        NodeSeen(
            node_id=node_id,
            incarnation=f"{node_id}-1",
            last_seen=story.at,
            silent=False,
            leases=listed if node_id == "n1" else (),
        )
        for node_id in ("n1", "n2")
    ]
    story.when(ObserveNodes(seen=tuple(sights)))
    story.when(Tick())
    story.when(LeaveNode(node_id="n1", incarnation="n1-1"))
    story.when(RetireNode(node_id="n1", incarnation="n1-1"))


def nodes_that_are_forgotten(story: Recorder) -> None:
    """A lost node is forgotten by order; another one is drained, retires, and is so in time."""
    story.when(node("n1", 1))
    story.when(node("n2", 1))
    story.when(describe(1))
    story.when(describe(3))
    story.when(request(1))
    story.when(request(3))
    seen(story, "n2", silent=True, after_ms=MINUTE_MS)
    story.when(ForgetNode(node_id="n2"))
    story.when(DrainNode(node_id="n1"))
    story.when(RetireNode(node_id="n1", incarnation="n1-1"))
    story.when(node("n1", 2))
    story.when(RetireNode(node_id="n1", incarnation="n1-2"))
    story.when(Tick(), after_ms=25 * HOUR_MS)


def a_node_whose_keys_are_withdrawn(story: Recorder) -> None:
    """Its job goes on elsewhere; it comes back with another key, which is withdrawn from afar."""
    story.when(node("n1", 1))
    story.when(describe(1))
    events = story.when(request(1))
    story.when(started(token_of(events), "n1"))
    story.when(WithdrawNodeKeys(node_id="n1"))
    story.when(WithdrawNodeKeys(node_id="n1"))
    story.when(node("n1", 2))
    story.when(WithdrawNodeKeys(node_id="n1", number=2))
    story.when(WithdrawNodeKeys(node_id="n3"))


def a_node_that_is_invited(story: Recorder) -> None:
    """Its token is used once; its answer is lost; another invitation replaces the one before."""
    hashes = ["1" * 64, "2" * 64]
    mine, other = "a" * 64, "b" * 64
    for token in hashes:
        story.when(InviteNode(node_id="n1", token_sha256=token, valid_ms=HOUR_MS))
    story.when(EnrolNode(node_id="n1", token_sha256=hashes[0], public_key=mine))
    for key in (mine, mine, other):
        story.when(EnrolNode(node_id="n1", token_sha256=hashes[1], public_key=key))
    story.when(RecordNodeKeys(node_id="n1", public_key=mine, sealed_keys="AAAA"))
    late = EnrolNode(node_id="n1", token_sha256=hashes[1], public_key=mine)
    story.when(late, after_ms=HOUR_MS)


def nodes_that_are_invited_with_one_token(story: Recorder) -> None:
    """Two join, the third is refused; the next token is revoked after its first use."""
    first, second = "1" * 64, "2" * 64
    for token, uses in ((first, 2), (second, 5)):
        story.when(InviteNode(node_id="spot", token_sha256=token, valid_ms=HOUR_MS, uses=uses))
        for number in range(3):
            node_id, key = f"spot-{token[0]}{number}", f"{number}" * 64
            if (token, number) == (second, 1):
                story.when(RevokeInvitation(node_id="spot"))
            story.when(
                EnrolNode(node_id=node_id, token_sha256=token, public_key=key, invitation="spot")
            )
    sealed = RecordNodeKeys(node_id="spot-10", public_key="0" * 64, sealed_keys="AAAA")
    story.when(sealed)


def a_lease_that_is_given_keys(story: Recorder) -> None:
    """Its agent asks twice; another one is refused, and so is an answer after the end."""
    mine = "a" * 64
    story.when(node("n1", 1))
    story.when(describe(1))
    token = token_of(story.when(request(1)))
    ask = RequestLeaseKeys(lease=token.lease, incarnation="n1-1", public_key=mine)
    answer = RecordLeaseKeys(
        lease=token.lease, incarnation="n1-1", public_key=mine, sealed_keys="AAAA"
    )
    for command in (ask, ask, answer, replace(ask, incarnation="n2-1")):
        story.when(command)
    story.when(started(token, "n1"))
    exited(story, token, "n1", "succeeded", HOUR_MS)
    for late in (ask, answer):
        story.when(late)
    story.when(freed(token, "n1"))


def an_attempt_without_keys(story: Recorder) -> None:
    """The lease gets no keys: it fails without a detail, as a fault of the platform."""
    story.when(node("n1", 1))
    story.when(describe(1))
    token = token_of(story.when(request(1)))
    story.when(RequestLeaseKeys(lease=token.lease, incarnation="n1-1", public_key="a" * 64))
    failed = ReportExit(
        token=token,
        incarnation="n1-1",
        outcome="failed",
        elapsed_ms=0,
        cause="platform",
        keyless=True,
    )
    story.when(failed, after_ms=300_000)
    story.when(freed(token, "n1"))


def work_that_teaches_how_long_it_takes(story: Recorder) -> None:
    """Eight jobs take half of their estimate; the ninth is expected to, until a checkpoint."""
    story.when(node("a", 1))
    for number in range(1, 10):
        story.when(describe(number), after_ms=0)
        events = story.when(request(number))
        token = token_of(events)
        story.when(started(token, "a"))
        if number < 9:
            story.when(UncordonNode(node_id="a"), after_ms=HOUR_MS // 2 - 1_000)
            exited(story, token, "a", "succeeded", HOUR_MS // 2)
            story.when(freed(token, "a"))
            story.when(ForgetWork(job_id=f"ftjob-{number}"))
    queued = next(event for event in events if isinstance(event, PlacementQueued))
    half = ExpectedTime(p50_ms=HOUR_MS // 2, p90_ms=HOUR_MS // 2)
    assert queued.expected == half
    slow = replace(checkpoint(20), captured_ms=HOUR_MS)
    report = ReportCheckpoint(token=token, incarnation="a-1", checkpoint=slow)
    story.when(report, after_ms=HOUR_MS)


def more_notices_than_one_decision(story: Recorder) -> None:
    """Premium jobs wait until those of the free lane may be stopped: ticks go on with the rest."""
    count = 34
    story.when(node("a", 1, slots=count))

    def lane_request(number: int, lane: Lane) -> RequestPlacement:
        placement = request(number).placement
        small = replace(placement, lane=lane, memory_bytes=1_000_000, p50_ms=10 * HOUR_MS)
        return RequestPlacement(placement=small)

    tokens = []
    for number in range(count):
        story.when(describe(number), after_ms=0)
        tokens.append(token_of(story.when(lane_request(number, "free"), after_ms=0)))
        story.when(started(tokens[-1], "a"), after_ms=0)
    for number, token in enumerate(tokens):
        saved = replace(checkpoint(5), captured_ms=9 * MINUTE_MS)
        report = ReportCheckpoint(token=token, incarnation="a-1", checkpoint=saved)
        story.when(report, after_ms=0 if number else 9 * MINUTE_MS)
    for number in range(count, 2 * count):
        story.when(describe(number), after_ms=0)
        story.when(lane_request(number, "premium"), after_ms=0)
    events = story.when(describe(2 * count), after_ms=MINUTE_MS)
    assert PlanningDeferred(pending=True) in events
    events = story.when(Tick(), after_ms=0)
    assert events[0] == PlanningDeferred(pending=False)
    assert any(isinstance(event, LeaseDraining) for event in events)


def a_machine_that_is_taken_away(story: Recorder) -> None:
    """A notice of two minutes: one job saves its work and goes on elsewhere, one never started."""
    story.when(node("a", 1, slots=2))
    story.when(describe(1))
    token = token_of(story.when(request(1)))
    story.when(started(token, "a"))
    story.when(describe(2))
    story.when(request(2))
    story.when(NoticeNode(node_id="a", incarnation="a-1", left_ms=2 * MINUTE_MS))
    report = ReportCheckpoint(token=token, incarnation="a-1", checkpoint=checkpoint(5))
    story.when(report, after_ms=MINUTE_MS // 2)
    story.when(exited(story, token, "a", "preempted", MINUTE_MS // 2))
    story.when(freed(token, "a"))
    story.when(node("b", 1, slots=2))
    story.when(request(1, attempt=2, checkpoints=(checkpoint(5),)))
    story.when(seen(story, "a", silent=True, after_ms=3 * MINUTE_MS))


def lose_two_spot_nodes(story: Recorder) -> None:
    """The first job allows spot nodes, and both that it has had were taken away."""
    story.when(describe(1))
    for attempt, name in enumerate(("a", "b"), start=1):
        story.when(RegisterNode(node=replace(node(name, 1).node, spot=True)))
        token = token_of(story.when(request(1, attempt=attempt, constraints=ALLOWS_SPOT)))
        story.when(started(token, name))
        story.when(NoticeNode(node_id=name, incarnation=f"{name}-1", left_ms=2 * MINUTE_MS))
        exited(story, token, name, "preempted", MINUTE_MS)


def spot_nodes_that_are_lost(story: Recorder) -> None:
    """A job that allows spot nodes loses two, is kept off them, and others give them up in time."""
    lose_two_spot_nodes(story)
    story.when(request(1, attempt=3, constraints=ALLOWS_SPOT))
    in_time = replace(ALLOWS_SPOT, finish_by=BEGAN + 12 * HOUR_MS)
    story.when(describe(2))
    story.when(request(2, constraints=in_time))
    story.when(Tick(), after_ms=2 * HOUR_MS)
    story.when(RegisterNode(node=replace(node("c", 1).node, reserved=True, accelerator="h200")))
    story.when(RegisterNode(node=replace(node("d", 1).node, spot=True)))
    story.when(WarnNode(node_id="d", incarnation="d-1"))


def a_domain_that_is_waited_for(story: Recorder) -> None:
    """One job waits for its domain as long as it takes, another one takes a node of any."""
    near = NodeConstraints(domain="rack-1")
    story.when(RegisterNode(node=replace(node("a", 1).node, domain="rack-1")))
    story.when(RegisterNode(node=replace(node("b", 1).node, domain="rack-2")))
    for number, wait_ms in enumerate((None, None, 10 * MINUTE_MS), start=1):
        story.when(describe(number))
        story.when(request(number, constraints=replace(near, domain_wait_ms=wait_ms)))
    story.when(Tick(), after_ms=10 * MINUTE_MS)


def a_device_that_breaks(story: Recorder) -> None:
    """One of a node's four devices breaks and ends a lease; another device is slowed down."""
    story.when(
        RegisterNode(node=replace(node("a", 1, 4).node, device="cuda", interconnect="nvlink"))
    )
    placed = replace(request(1).placement, device="cuda")
    story.when(describe(1))
    token = token_of(story.when(RequestPlacement(placement=placed)))
    story.when(started(token, "a"), after_ms=MINUTE_MS)
    slow = DeviceFault(device=3, reason=device_fault("throttled"))
    broken = DeviceFault(device=0, reason=device_fault("xid", xid=79))
    faults = ReportDeviceFaults(node_id="a", incarnation="a-1", faults=(broken, slow))
    story.when(faults, after_ms=10 * MINUTE_MS)
    story.when(freed(token, "a"))
    story.when(RequestPlacement(placement=replace(placed, attempt=2)))
    story.when(replace(faults, faults=(broken,)))


def a_cluster_that_makes_leases_wait(story: Recorder) -> None:
    """One lease is admitted late, one never, and one ends when the quota shrinks below its use.

    The quota then grows again.
    """
    story.when(RegisterNode(node=replace(node("a", 1, 3).node, elastic=True)))
    tokens = []
    for number in (1, 2, 3):
        story.when(describe(number))
        tokens.append(token_of(story.when(request(number))))
    story.when(started(tokens[2], "a"))
    for words in ("3 more needed", "1 more needed"):
        wait = ClusterWait(cause="quota", condition=words)
        for token in tokens:  # one of which runs
            story.when(ReportWait(token=token, incarnation="a-1", wait=wait), after_ms=MINUTE_MS)
    story.when(ReportWait(token=tokens[0], incarnation="a-1"), after_ms=20 * MINUTE_MS)
    story.when(started(tokens[0], "a"), after_ms=15 * MINUTE_MS)
    story.when(ResizeNode(node_id="a", incarnation="a-1", slots=1))
    story.when(Tick(), after_ms=HOUR_MS)
    story.when(freed(tokens[1], "a"))
    story.when(started(tokens[1], "a"))  # too late
    story.when(request(2, attempt=2))
    exited(story, tokens[0], "a", "succeeded", 10 * MINUTE_MS)
    story.when(freed(tokens[0], "a"))
    story.when(ResizeNode(node_id="a", incarnation="a-1", slots=2), after_ms=MINUTE_MS)


def spot_nodes_after_four_hours(story: Recorder) -> None:
    """A job that lost two spot nodes waits beside a third one, and gets it four hours later."""
    lose_two_spot_nodes(story)
    story.when(node("c", 1))
    story.when(describe(2))
    story.when(request(2))
    story.when(RegisterNode(node=replace(node("d", 1).node, spot=True)))
    story.when(request(1, attempt=3, constraints=ALLOWS_SPOT))
    story.when(Tick(), after_ms=4 * HOUR_MS)
