"""The second books find bills that are wrong at some prefix, or do not agree at the end."""

import pytest
from msgspec.structs import replace

from schemas.admission import SuspensionSet
from schemas.envelope import Tick
from schemas.job import HoldTaken, JobSubmitted, LimitsSet
from schemas.lease_keys import LeaseHolder, LeaseKeysRequested, LeaseKeysSealed, LeaseNeeds
from schemas.node import LeaseSeen, NodeSeen
from schemas.pool import (
    LeaseGranted,
    LeaseKilled,
    LeaseMember,
    LeaseRef,
    NodesObserved,
    Token,
    UsageCredited,
    UsageSliced,
)
from schemas.reasons import ending
from schemas.units import HOUR_MS, month_of
from simulator.control_plane.books import KeyBooks, SecondBooks, StartLimits
from simulator.control_plane.samples import MINUTE, POOL, T0, limits
from simulator.control_plane.usage_books import Beat, Granted, LeaseBook
from tests.unit.services.scheduler.world import World
from tests.unit.services.trainer.domain.test_evolve import closed, granted

HOUR_UTC = T0 // HOUR_MS


def run_one_job() -> World:
    world = World(3, chaos=False)
    world.submit("acme")
    world.drain()
    while world.books.quota.open_jobs or world.held:
        world.step()
    return world


def events_of(world: World, kind: type[object]) -> list[object]:
    journals = (*world.job.journal, *world.pool.journal)
    return [event for _, events in journals for event in events if isinstance(event, kind)]


def test_a_quiet_job_leaves_books_that_agree() -> None:
    books = run_one_job().books
    assert books.violations == []
    assert books.violations_at_the_end() == []
    assert sum(books.net.values()) > 0
    assert {month_of(hour_utc) for _, _, hour_utc in books.meter.net} == {month_of(HOUR_UTC)}


def test_a_bill_above_the_hold_is_found_when_it_is_written() -> None:
    world = run_one_job()
    (usage, *_), (hold, *_) = events_of(world, UsageSliced), events_of(world, HoldTaken)
    assert isinstance(usage, UsageSliced)
    assert isinstance(hold, HoldTaken)
    books = world.books
    credit = UsageCredited(
        lease=usage.lease,
        hour_utc=usage.hour_utc,
        lost_gpu_ms=hold.estimate.hold_gpu_ms,
        cause="lost",
    )
    books.enter_pool(Tick(), (credit,), world.at)
    assert any(text.startswith("hold: ") for text in books.violations)
    assert any(text.startswith("ledger: ") for text in books.violations)


def test_a_job_without_an_end_is_found_at_the_end() -> None:
    world = run_one_job()
    (submitted, *_) = events_of(world, JobSubmitted)
    books = SecondBooks({}, {})
    books.enter_job("acme", Tick(), (submitted,), T0)
    assert books.violations_at_the_end() == ["end: ftjob-0 never ended"]


@pytest.mark.parametrize(("elapsed_ms", "violations"), [(5, 0), (7, 0), (6, 1)])
def test_an_observation_has_the_times_of_one_heartbeat(elapsed_ms: int, violations: int) -> None:
    """While broker time stands still, several heartbeats are of the same moment."""
    books = SecondBooks({("n1", "n1.1"): (Beat(T0, {2: 5}), Beat(T0, {2: 7}))}, {})
    leases = (LeaseSeen(lease=2, elapsed_ms=elapsed_ms),)
    seen = NodeSeen(node_id="n1", incarnation="n1.1", last_seen=T0, silent=False, leases=leases)
    books.enter_pool(Tick(), (NodesObserved(seen=(seen,)),), T0)
    assert len(books.violations) == violations


@pytest.mark.parametrize(
    ("last_seen", "violations"), [(T0, 0), (T0 - 3, 0), (T0 - 9, 1), (T0 - 1, 1)]
)
def test_broker_time_may_step_back_between_two_heartbeats(last_seen: int, violations: int) -> None:
    """The newest has the times; what was seen last is an earlier one, unless the watcher is new."""
    beats = (Beat(T0 - 9, {2: 1}), Beat(T0, {2: 5}), Beat(T0 - 3, {2: 7}))
    books = SecondBooks({("n1", "n1.1"): beats}, {})
    leases = (LeaseSeen(lease=2, elapsed_ms=7),)
    observed = NodesObserved(
        seen=(
            NodeSeen(
                node_id="n1", incarnation="n1.1", last_seen=last_seen, silent=False, leases=leases
            ),
        )
    )
    books.enter_pool(Tick(), (observed,), T0)
    assert len(books.violations) == violations


def test_a_node_lived_when_it_was_seen_before_broker_time_stepped_back() -> None:
    """Seed 2019 of the control plane: agents run on, whatever the broker's clock says."""
    beats = (Beat(T0 + 20, {2: 10}), Beat(T0 + 5, {2: 15}))
    books = SecondBooks({("n1", "n1.1"): beats}, {})
    grant = Granted(
        token=Token(pool=POOL, lease=2),
        job_id="ftjob-1",
        attempt=1,
        members=(LeaseMember(node_id="n1", incarnation="n1.1", slots=1, devices=(0,)),),
        slots=1,
        max_gpu_ms=HOUR_MS,
        billed_gpu_ms_max=HOUR_MS,
        checkpoints=(),
    )
    lease = books.meter.held[2] = LeaseBook(grant, started_at=T0, alive_at=T0)
    for beat in beats:
        leases = (LeaseSeen(lease=2, elapsed_ms=beat.elapsed_ms[2]),)
        seen = NodeSeen(
            node_id="n1", incarnation="n1.1", last_seen=beat.at, silent=False, leases=leases
        )
        books.enter_pool(Tick(), (NodesObserved(seen=(seen,)),), T0 + 20)
    assert books.violations == []
    assert lease.alive_at == T0 + 15


def test_an_admission_of_a_suspended_tenant_is_found() -> None:
    (submitted, *_) = events_of(run_one_job(), JobSubmitted)
    books = SecondBooks({}, {})
    set_limits = LimitsSet(terms=replace(limits().terms, lane="premium"))
    books.enter_job("acme", Tick(), (set_limits, SuspensionSet(suspended=True), submitted), T0)
    assert {text.partition(":")[0] for text in books.violations} == {"suspended"}


def test_an_admission_at_another_price_than_the_plans_is_found() -> None:
    (submitted, *_) = events_of(run_one_job(), JobSubmitted)
    books = SecondBooks({}, {})
    terms = replace(limits().terms, lane="premium")
    to_come = replace(terms, price_version="2026-12")
    changes = (LimitsSet(terms=terms), LimitsSet(terms=to_come, effective_at=T0 + 1))
    books.enter_job("acme", Tick(), changes, T0)
    books.enter_job("acme", Tick(), (submitted,), T0 + 1)
    assert {text.partition(":")[0] for text in books.violations} == {"price"}


def holder(incarnation: str) -> LeaseHolder:
    return LeaseHolder(
        lease=1, tenant="acme", job_id="job1", attempt=1, node_id="a", incarnation=incarnation
    )


def asks(incarnation: str = "a1") -> LeaseKeysRequested:
    return LeaseKeysRequested(holder=holder(incarnation), public_key="a" * 64, needs=LeaseNeeds())


def gets(incarnation: str = "a1") -> LeaseKeysSealed:
    return LeaseKeysSealed(holder=holder(incarnation), sealed_keys="s")


def violations(*events: object) -> int:
    books = KeyBooks()
    for event in events:
        books.enter(event)
    return len(books.violations)


def test_the_holder_of_an_open_lease_may_have_its_keys() -> None:
    assert violations(granted(), asks(), gets(), closed(1)) == 0


def test_other_agents_get_no_keys_and_none_does_after_the_end() -> None:
    assert violations(granted(), asks("b1")) == 1
    assert violations(granted(), gets()) == 1, "keys without a request"
    assert violations(granted(), asks(), closed(1), gets()) == 1
    assert violations(asks()) == 1


LEASE = LeaseRef(
    token=Token(pool=POOL, lease=1),
    tenant="acme",
    job_id="ftjob-1",
    attempt=1,
    role="train",
    lane="standard",
    price_version="p",
)


def prepared(count: int) -> NodesObserved:
    listed = LeaseSeen(lease=1, elapsed_ms=0, prepared_bytes=count)
    seen = NodeSeen(node_id="a", incarnation="a-1", last_seen=T0, silent=False, leases=(listed,))
    return NodesObserved(seen=(seen,))


@pytest.mark.parametrize(
    ("progress", "ended_at", "violations"),
    [
        ((), 9, 1),
        ((), 10, 0),
        ((8,), 17, 1),
        ((8,), 18, 0),
        (tuple(range(2, 40, 2)), 39, 1),
        (tuple(range(2, 40, 2)), 40, 0),
    ],
)
def test_a_lease_has_time_while_it_is_seen_to_prepare(
    progress: tuple[int, ...], ended_at: int, violations: int
) -> None:
    starts = StartLimits()
    starts.enter(LeaseGranted(lease=LEASE, members=()), T0)
    for count, minute in enumerate(progress, start=1):
        starts.enter(prepared(count), T0 + minute * MINUTE)
    killed = LeaseKilled(lease=LEASE, ended_by="platform", reason=ending("start_timeout"))
    starts.enter(killed, T0 + ended_at * MINUTE)
    assert len(starts.violations) == violations
