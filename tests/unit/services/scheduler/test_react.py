"""Reactions: which facts lead to which commands, and to whom."""

from datetime import UTC, datetime
from typing import Final

import pytest
from msgspec.structs import replace

from schemas import errors
from schemas.account import RICH_EVENT_TYPES, USAGE_RECORDED, Announce
from schemas.admission import TENANT_BUDGET, BudgetTerms, SetBudget, SetSuspension
from schemas.anomaly import Anomaly, RecordAnomaly
from schemas.envelope import Header, Reason, Rejected, Tick
from schemas.job import (
    CancelJob,
    JobEnded,
    PauseJob,
    PlacementUnwanted,
    RecordDraining,
    RecordRegistered,
    RecordVerdict,
)
from schemas.lifetime import KeepVersion, ReleaseVersion
from schemas.node import NodeKeysWithdrawn, WithdrawNodeKeys
from schemas.pool import (
    ClosePlacement,
    ConfirmFreed,
    EndAuthor,
    EndRequest,
    ForgetWork,
    LeaseKilled,
    LeaseRef,
    PlacementClosed,
    Token,
    UsageCredited,
    UsageSliced,
)
from schemas.reasons import Failure, ending, failing
from schemas.serving import RemoveServingPool, ReplicaTerms, ServingPoolTerms, SetServingPool
from schemas.streams import GLOBAL, PARTITIONS
from schemas.submission import Price
from schemas.training import AdapterStart, FailureCause
from schemas.units import HOUR_MS
from services.scheduler.app import POOLS
from services.scheduler.domain.job.quota import attempt_gpu_ms_max
from services.scheduler.domain.pool import closing
from services.scheduler.domain.pool.faults import BACK_OFF_MS
from services.scheduler.react import react_job, react_pool
from simulator.control_plane.samples import BASE, MINUTE, PASSED, POOL, T0, limits, node, submit
from tests.ticks import next_tick
from tests.unit.services.scheduler.domain.job.test_serving import wanted
from tests.unit.services.scheduler.domain.job.test_sweeps import sweep
from tests.unit.services.scheduler.fold import open_gpu_ms
from tests.unit.services.scheduler.joined import JOB_ID, Joined
from tests.unit.services.scheduler.lives import LIVES, TENANT, new_tenant

HEADER = Header(
    stream="job",
    partition=1,
    offset=7,
    at=T0,
    key=TENANT,
    tenant=TENANT,
    seq=1,
    command_id="0" * 32,
    incarnation=0,
)
LEASE = LeaseRef(
    token=Token(pool=POOL, lease=1),
    tenant=TENANT,
    job_id="ftjob-1",
    attempt=1,
    role="train",
    lane="free",
    price_version="2026-11",
)


def test_events_of_a_jobs_life_lead_to_commands_for_the_right_streams() -> None:
    decider = new_tenant()
    said = [
        (send.stream, send.key, type(send.body).__name__)
        for command in LIVES["done"]
        for event in decider.when(command)
        for send in react_job(HEADER, event)
    ]
    assert said == [
        ("dataset", TENANT, "PinDataset"),
        ("model", TENANT, "PinBase"),
        ("pool", POOL, "DescribeWork"),
        ("pool", POOL, "RequestPlacement"),
        ("account", TENANT, "Announce"),
        ("pool", POOL, "DescribeWork"),
        ("pool", POOL, "RequestPlacement"),
        ("account", TENANT, "Announce"),
        ("model", TENANT, "RegisterVersion"),
        ("account", TENANT, "Announce"),
        ("dataset", TENANT, "UnpinDataset"),
        ("pool", POOL, "ForgetWork"),
    ]


STUCK = RecordAnomaly(
    job_id="ftjob-1",
    anomaly=Anomaly(kind="stuck", attempt=1, window=0, measured_ppm=9, usual_ppm=1),
)
SPENT_BUDGET = SetBudget(
    terms=BudgetTerms(budget_id=TENANT_BUDGET, currency="EUR", max_amount_micro=1)
)


def test_an_alert_of_a_budget_is_announced_once_with_its_month_and_percent() -> None:
    decider = new_tenant()
    for command in LIVES["queued"]:
        decider.when(command)
    announced = [
        send.body.event
        for event in decider.when(SPENT_BUDGET)
        for send in react_job(HEADER, event)
        if isinstance(send.body, Announce)
    ]
    assert [event.alert and event.alert.percent for event in announced] == [50, 80, 100]
    assert {event.object_id for event in announced} == {TENANT_BUDGET}
    assert len({event.event_id for event in announced}) == 3


BLOCKED_WORK = (
    *(limits(concurrency=1), wanted(1), SetSuspension(suspended=True)),
    *(RecordDraining(job_id="sp_1-1", attempt=1), SetSuspension(suspended=False)),
    *(submit("ftjob-1"), sweep(), limits(lane="free"), CancelJob(job_id="ftjob-1")),
)


def test_what_is_announced_is_what_endpoints_may_subscribe_to() -> None:
    said = {
        send.body.event.event_type
        for commands in (
            LIVES["done"],
            (*LIVES["queued"], STUCK, PauseJob(job_id="ftjob-1"), SPENT_BUDGET),
            BLOCKED_WORK,
        )
        for decider in (new_tenant(),)
        for command in commands
        for event in decider.when(command)
        for send in react_job(HEADER, event)
        if isinstance(send.body, Announce)
    }
    by_the_exporter = {USAGE_RECORDED}
    ends = {"fine_tuning.job.succeeded", "fine_tuning.job.cancelled"}
    assert said == {*ends, *RICH_EVENT_TYPES} - by_the_exporter


def test_an_end_is_announced_under_one_name() -> None:
    ended = JobEnded(
        job_id="ftjob-1",
        outcome="cancelled",
        model_id=None,
        failure=None,
        trained_tokens=0,
        billable_gpu_ms=0,
        lost_gpu_ms=0,
        released_gpu_ms=0,
        created_at=T0,
    )
    announce = react_job(HEADER, ended)[0].body
    assert announce == react_job(HEADER, ended)[0].body
    assert isinstance(announce, Announce)
    assert announce.event.event_type == "fine_tuning.job.cancelled"
    assert announce.event.event_id.startswith("ftevent-")


def test_closing_a_placement_goes_to_its_pool() -> None:
    request = EndRequest(attempt=2, mode="kill", ended_by="tenant", reason=ending("cancelled"))
    (send,) = react_job(HEADER, PlacementUnwanted(job_id="ftjob-1", pool="big", request=request))
    assert (send.stream, send.key, send.tenant) == ("pool", "big", TENANT)
    assert send.body == ClosePlacement(job_id="ftjob-1", request=request)


def test_use_counts_what_is_billable_and_credits_count_back() -> None:
    sliced = UsageSliced(lease=LEASE, hour_utc=5, used_gpu_ms=9, billable_gpu_ms=7)
    credited = UsageCredited(lease=LEASE, hour_utc=5, lost_gpu_ms=3, cause="lost")
    amounts = [
        (send.stream, send.key, getattr(send.body, "gpu_ms", None))
        for event in (sliced, credited)
        for send in react_pool(HEADER, event)
    ]
    assert amounts == [("job", TENANT, 7), ("job", TENANT, -3)]


def test_events_for_agents_lead_to_no_reactions() -> None:
    killed = LeaseKilled(lease=LEASE, ended_by="tenant", reason=ending("cancelled"))
    assert react_pool(HEADER, killed) == ()
    assert react_pool(HEADER, Rejected(code="x", reason=Reason(code="y"))) == ()
    assert PlacementClosed not in {type(send.body) for send in react_pool(HEADER, killed)}


# --- findings of the review of money, as they happened: deciders, reactions and ledger ------------

DECEMBER: Final = int(datetime(2026, 12, 1, tzinfo=UTC).timestamp()) * 1_000
FIRST_HOUR: Final = DECEMBER // HOUR_MS


def test_money_b4_a_node_that_dies_in_the_first_minute_of_a_month_credits_the_month_before() -> (
    None
):
    """Finding B4: the whole credit was a line of December, whose quota began at −10 h."""
    story = Joined(DECEMBER - 3 * HOUR_MS, hard_gpu_ms=20 * HOUR_MS)
    story.start()
    for hour in range(1, 4):
        story.wait(HOUR_MS)
        story.beat(hour * HOUR_MS)
    story.wait(MINUTE)
    story.beat(3 * HOUR_MS + MINUTE)
    story.wait(MINUTE // 2)
    story.beat(3 * HOUR_MS + MINUTE, silent=True)
    hours = range(FIRST_HOUR - 3, FIRST_HOUR)
    assert story.credits == [
        *(("lost", hour, HOUR_MS) for hour in hours),
        ("lost", FIRST_HOUR, MINUTE),
    ]
    assert story.billed == {}
    assert story.quota == {"2026-11": 0, "2026-12": 0}
    assert open_gpu_ms(story.job.state[TENANT]) >= 0


def test_money_b4_only_what_came_after_the_last_checkpoint_is_taken_back() -> None:
    story = Joined(DECEMBER - 3 * HOUR_MS)
    story.start()
    story.wait(3 * HOUR_MS)
    story.save(10, 90 * MINUTE)
    story.beat(3 * HOUR_MS)
    story.wait(5 * MINUTE)
    story.exit("failed", 3 * HOUR_MS + 5 * MINUTE, "platform")
    assert story.credits == [
        ("platform", FIRST_HOUR - 2, 30 * MINUTE),
        ("platform", FIRST_HOUR - 1, HOUR_MS),
        ("platform", FIRST_HOUR, 5 * MINUTE),
    ]
    assert story.billed == {FIRST_HOUR - 3: HOUR_MS, FIRST_HOUR - 2: 30 * MINUTE}
    assert sum(story.quota.values()) == 90 * MINUTE


def trained() -> Joined:
    """Ninety minutes of training, with a checkpoint each half hour."""
    story = Joined(DECEMBER - HOUR_MS)
    story.start()
    for step in range(1, 4):
        story.wait(30 * MINUTE)
        story.save(step, 30 * MINUTE * step)
    story.beat(90 * MINUTE)
    return story


def evaluated() -> Joined:
    """A training and its evaluation of five minutes; the job waits for the verdict."""
    story = trained()
    story.exit("succeeded", 90 * MINUTE)
    story.start()
    story.wait(5 * MINUTE)
    story.exit("succeeded", 5 * MINUTE)
    return story


UNJUDGED = Failure(code=errors.PLATFORM, reason=failing("scores_unjudged"))
FULL = Failure(code=errors.ILLEGAL_STATE, reason=failing("versions_at_most", limit=10))


@pytest.mark.parametrize("at", ["verdict", "publication"])
def test_money_a2_a_job_that_fails_by_a_platform_error_costs_nothing(at: str) -> None:
    """Finding A2: 95 minutes were billed for scores that we lost, and 0 credited."""
    story = evaluated()
    if at == "verdict":
        story.to_job(RecordVerdict(job_id=JOB_ID, summary=None, failure=UNJUDGED))
    else:
        story.to_job(RecordVerdict(job_id=JOB_ID, summary=PASSED))
        story.to_job(RecordRegistered(job_id=JOB_ID, model_id="ft:smol", failure=FULL))
    assert story.end.failure is not None
    assert (story.end.failure.code, story.end.refund) == ("platform_error", "platform_error")
    assert story.end.billable_gpu_ms == story.end.lost_gpu_ms == 95 * MINUTE
    assert {cause for cause, *_ in story.credits} == {"platform_error"}
    assert story.billed == {}
    assert story.quota == {"2026-11": 0, "2026-12": 0}


def test_money_a2_a_job_whose_attempts_are_exhausted_costs_nothing() -> None:
    """Finding A2: four platform errors in a row were billed 90 minutes."""
    story = trained()
    story.exit("failed", 90 * MINUTE, "platform")
    for back_off_ms in BACK_OFF_MS:
        story.wait(back_off_ms)
        story.to_pool(Tick())
        story.start()
        story.wait(MINUTE)
        story.exit("failed", MINUTE, "platform")
    assert story.end.failure is not None
    assert story.end.failure.code == "attempts_exhausted"
    assert {cause for cause, *_ in story.credits} == {"platform", "attempts_exhausted"}
    assert story.billed == {}


@pytest.mark.parametrize("lost_first", [False, True])
@pytest.mark.parametrize("refunds_max", [closing.REFUNDS_MAX, 2])
def test_review2_m10_a_job_that_uses_up_its_hold_costs_its_estimate_at_most(
    monkeypatch: pytest.MonkeyPatch, lost_first: bool, refunds_max: int
) -> None:
    """Such a job was billed three times its estimate, without a result."""
    monkeypatch.setattr(closing, "REFUNDS_MAX", refunds_max)
    story = Joined(DECEMBER - 3 * HOUR_MS)
    job = story.job.state[TENANT].jobs[JOB_ID]
    assert job.hold is not None
    estimated = job.hold.train_gpu_ms + job.hold.eval_gpu_ms
    if lost_first:
        story.start()
        story.wait(HOUR_MS)
        story.exit("lost", HOUR_MS)
        story.beat()
    most = attempt_gpu_ms_max(story.job.state[TENANT].jobs[JOB_ID], "train")
    story.start()
    story.wait(most)
    story.exit("failed", most, "budget")
    while (due := next_tick(POOLS, story.pool.state)) is not None and due[0] <= story.pool.at:
        story.to_pool(Tick())
    assert story.end.failure is not None
    assert (story.end.failure.code, story.end.refund) == ("budget_exhausted", "estimate_exceeded")
    assert story.end.billable_gpu_ms - story.end.lost_gpu_ms == estimated < most
    assert sum(story.billed.values()) == estimated
    assert sum(story.quota.values()) == estimated
    assert JOB_ID not in story.pool.state[POOL].charged
    assert story.pool.refolded() == story.pool.state
    assert story.job.refolded() == story.job.state


def test_money_a2_a_refund_is_given_once_whatever_comes_twice() -> None:
    story = evaluated()
    verdict = RecordVerdict(job_id=JOB_ID, summary=None, failure=UNJUDGED)
    story.to_job(verdict)
    lines = len(story.rows)
    story.to_job(verdict)
    story.to_pool(ForgetWork(job_id=JOB_ID, refund="platform_error"))
    assert len(story.rows) == lines
    assert JOB_ID not in story.pool.state[POOL].charged
    assert story.pool.refolded() == story.pool.state


def test_money_a2_memory_that_ran_out_credits_the_attempt_with_its_checkpoints() -> None:
    story = trained()
    story.exit("failed", 90 * MINUTE, "oom")
    assert story.credits == [("oom", FIRST_HOUR - 1, HOUR_MS), ("oom", FIRST_HOUR, 30 * MINUTE)]
    assert story.billed == {}


@pytest.mark.parametrize("cause", ["user", "bad_data", "divergence", "budget"])
def test_money_a2_what_the_tenant_is_answerable_for_is_billed(cause: FailureCause) -> None:
    story = trained()
    story.exit("failed", 90 * MINUTE, cause)
    assert story.credits == []
    assert sum(story.billed.values()) == 90 * MINUTE


@pytest.mark.parametrize("cause", ["platform", "bad_node"])
def test_money_a2_a_platform_failure_credits_the_work_since_the_last_checkpoint(
    cause: FailureCause,
) -> None:
    story = trained()
    story.wait(5 * MINUTE)
    story.exit("failed", 95 * MINUTE, cause)
    assert story.credits == [(cause, FIRST_HOUR, 5 * MINUTE)]


@pytest.mark.parametrize(("ended_by", "lost"), [("tenant", 0), ("scheduler", 5 * MINUTE)])
def test_money_a2_a_tenant_who_ends_an_attempt_pays_and_a_victim_does_not(
    ended_by: EndAuthor, lost: int
) -> None:
    story = trained()
    request = EndRequest(attempt=1, mode="kill", ended_by=ended_by, reason=ending("preempted"))
    story.to_pool(ClosePlacement(job_id=JOB_ID, request=request))
    story.wait(5 * MINUTE)
    story.exit("preempted", 95 * MINUTE)
    assert sum(story.billed.values()) == 95 * MINUTE - lost
    assert sum(amount for _, _, amount in story.credits) == lost


def test_money_a2_a_refund_larger_than_a_record_goes_on_with_ticks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(closing, "REFUNDS_MAX", 2)
    story = evaluated()
    story.to_job(RecordVerdict(job_id=JOB_ID, summary=None, failure=UNJUDGED))
    assert len(story.credits) == 2
    assert next_tick(POOLS, story.pool.state) == (0, POOL)
    story.to_pool(Tick())
    assert story.billed == {}
    assert next_tick(POOLS, story.pool.state) is None
    assert story.pool.refolded() == story.pool.state


def test_money_a1_an_exit_below_what_is_sliced_is_corrected_in_its_hours() -> None:
    """Finding A1: the exit's own time was raised to what heartbeats had let the pool slice."""
    story = Joined(DECEMBER - 2 * HOUR_MS)
    story.start()
    story.wait(2 * HOUR_MS)
    story.beat(2 * HOUR_MS)
    story.wait(MINUTE)
    story.exit("failed", 50 * MINUTE, "user")
    assert story.credits == [
        ("correction", FIRST_HOUR - 2, 10 * MINUTE),
        ("correction", FIRST_HOUR - 1, HOUR_MS),
    ]
    assert story.billed == {FIRST_HOUR - 2: 50 * MINUTE}
    assert story.end.billable_gpu_ms - story.end.lost_gpu_ms == 50 * MINUTE


def test_money_a1_a_corrected_attempt_of_the_platform_is_given_back_beside_it() -> None:
    story = Joined(DECEMBER - 2 * HOUR_MS)
    story.start()
    story.wait(2 * HOUR_MS)
    story.save(1, 20 * MINUTE)
    story.beat(2 * HOUR_MS)
    story.exit("failed", 50 * MINUTE, "platform")
    assert story.billed == {FIRST_HOUR - 2: 20 * MINUTE}
    assert {cause for cause, *_ in story.credits} == {"correction", "platform"}


def test_a_job_keeps_the_version_that_it_begins_with_until_it_has_ended() -> None:
    start = AdapterStart(model_id="ft:first", sha256="a" * 64, files=())
    decider = new_tenant().accept(limits())
    said = [
        send.body
        for command in (submit("ftjob-1", start=start), CancelJob(job_id="ftjob-1"))
        for event in decider.when(command)
        for send in react_job(HEADER, event)
        if send.stream == "model"
    ]
    assert said[0] == KeepVersion(job_id="ftjob-1", model_id="ft:first")
    assert said[-1] == ReleaseVersion(job_id="ftjob-1")


def served(at: int, replicas: int = 1) -> Joined:
    """A serving pool with terms of an hour on the one slot, and no job."""
    story = Joined(at)
    story.to_job(CancelJob(job_id=JOB_ID))
    story.to_pool(ConfirmFreed(token=Token(pool=POOL, lease=1), node_id="a", incarnation="a-1"))
    replica = ReplicaTerms(
        base=BASE, pool=POOL, slots=1, memory_bytes=1_000_000_000, term_ms=HOUR_MS
    )
    price = Price(version="2026-11", currency="EUR", gpu_hour_micro=2_000_000, lane="standard")
    terms = ServingPoolTerms(
        serving_pool_id="sp_1", replicas=replicas, replica=replica, price=price
    )
    story.to_job(SetServingPool(terms=terms))
    story.start()
    return story


def waiting_terms(story: Joined) -> list[str]:
    return sorted(story.pool.state[POOL].waiting)


def test_a_replica_is_billed_by_terms_that_follow_each_other() -> None:
    story = served(DECEMBER)
    story.wait(58 * MINUTE)
    story.beat(58 * MINUTE)  # two minutes before its cap it drains, and the next term asks
    assert waiting_terms(story) == ["sp_1-2"]
    story.wait(MINUTE)
    story.exit("preempted", 59 * MINUTE)
    assert (waiting_terms(story), story.lease.ref.job_id) == ([], "sp_1-2")
    story.start()
    story.wait(21 * MINUTE)
    story.beat(21 * MINUTE)
    story.to_job(RemoveServingPool(serving_pool_id="sp_1"))
    story.exit("preempted", 21 * MINUTE)
    assert story.billed == {FIRST_HOUR: 60 * MINUTE, FIRST_HOUR + 1: 20 * MINUTE}
    assert {row["role"] for row in story.rows.values()} == {"serve"}
    assert story.quota == {"2026-12": 80 * MINUTE}
    assert not story.job.state[TENANT].serving_terms
    assert not story.pool.state[POOL].works
    assert story.job.refolded() == story.job.state


def test_a_replica_whose_node_dies_is_replaced_and_what_it_answered_is_billed() -> None:
    story = served(DECEMBER)
    story.wait(20 * MINUTE)
    story.beat(20 * MINUTE)
    story.wait(10 * MINUTE)
    story.to_pool(node("a", "a-2", 1))
    assert story.credits == []
    assert story.billed == {FIRST_HOUR: 20 * MINUTE}
    assert story.lease.ref.job_id == "sp_1-2"
    assert [member.incarnation for member in story.lease.members] == ["a-2"]


def test_more_replicas_than_slots_wait_and_a_removed_pool_leaves_the_queue() -> None:
    story = served(DECEMBER, replicas=3)
    assert waiting_terms(story) == ["sp_1-2", "sp_1-3"]
    story.to_job(RemoveServingPool(serving_pool_id="sp_1"))
    assert waiting_terms(story) == []
    assert sorted(story.job.state[TENANT].serving_terms) == ["sp_1-1"]


def test_security_c2_withdrawn_keys_are_sent_to_every_partition() -> None:
    """Once, by the pool of the node: what a partition was told is not told again."""
    header = replace(HEADER, stream="pool", key=POOL)
    event = NodeKeysWithdrawn(node_id="a", number=1)
    sends = react_pool(header, event)
    assert {send.body for send in sends} == {WithdrawNodeKeys(node_id="a", number=1)}
    partitions = {(send.stream, send.partition) for send in sends}
    everywhere = {(stream, part) for stream in ("pool", "account") for part in range(PARTITIONS)}
    assert partitions == everywhere - {("pool", header.partition)}
    assert react_pool(replace(header, key=GLOBAL), event) == ()
