"""The independent meter: leases, slots, tokens and hours that no pool may report."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas.envelope import Tick
from schemas.node import NodeSeen
from schemas.pool import (
    CheckpointAccepted,
    LeaseGranted,
    LeaseStarted,
    MemberFreed,
    NodesObserved,
    PlacementClosed,
    PlacementQueued,
    ReportStarted,
    Token,
    UsageSliced,
)
from schemas.training import AttemptStart
from simulator.control_plane.samples import POOL, checkpoint
from simulator.control_plane.usage_books import Meter
from tests.unit.services.scheduler.world import World

OTHER_LEASE = Token(pool=POOL, lease=99)


@pytest.fixture
def world() -> World:
    """One job that ran without a fault, and the meter's account of it."""
    quiet = World(3, chaos=False)
    quiet.submit("acme")
    quiet.drain()
    while quiet.books.quota.open_jobs or quiet.held:
        quiet.step()
    assert quiet.books.meter.violations == []
    return quiet


def first(world: World, kind: type[Any]) -> Any:
    """The first event of a kind in the journal of the pool."""
    return next(e for _, events in world.pool.journal for e in events if isinstance(e, kind))


def said(world: World, *events: Any, command: Any = None) -> set[str]:
    """The invariants that the meter finds violated by these events after the run."""
    world.books.meter.enter(command or Tick(), events, world.at)
    return {text.partition(":")[0] for text in world.books.meter.violations}


def another(world: World) -> LeaseGranted:
    """A grant of the first placement under another number of a lease."""
    granted: LeaseGranted = first(world, LeaseGranted)
    return replace(granted, lease=replace(granted.lease, token=OTHER_LEASE))


def test_the_lines_of_the_ledger_are_what_was_sliced(world: World) -> None:
    meter = world.books.meter
    sliced = [
        event
        for _, events in world.pool.journal
        for event in events
        if isinstance(event, UsageSliced)
    ]
    assert meter.lines.total() == len(sliced) > 0
    assert sum(line.gpu_ms for line in meter.lines) == sum(e.billable_gpu_ms for e in sliced)
    assert sum(meter.net.values()) == sum(event.billable_gpu_ms for event in sliced)
    assert meter.held == {}


def test_a_lease_that_is_granted_twice_is_found(world: World) -> None:
    assert said(world, first(world, LeaseGranted)) == {"slots"}
    assert "granted twice" in world.books.meter.violations[0]


def test_more_slots_than_a_node_has_are_found(world: World) -> None:
    granted = another(world)
    (member,) = granted.members
    node = world.books.meter.nodes[member.node_id]
    for number in range(node.slots):
        token = replace(OTHER_LEASE, lease=100 + number)
        assert said(world, replace(granted, lease=replace(granted.lease, token=token))) == set()
    assert said(world, granted) == {"slots"}


def test_a_lease_on_a_node_that_came_anew_is_found(world: World) -> None:
    granted = another(world)
    (member,) = granted.members
    older = replace(member, incarnation="before its restart")
    assert said(world, replace(granted, members=(older,))) == {"slots"}


def test_one_device_given_twice_is_found(world: World) -> None:
    granted = another(world)
    (member,) = granted.members
    twice = replace(member, devices=(*member.devices, *member.devices), slots=2)
    assert "slots" in said(world, replace(granted, members=(twice,)))


def test_usage_after_the_end_is_found(world: World) -> None:
    tokens_alone = replace(first(world, UsageSliced), used_gpu_ms=0)
    assert said(world, tokens_alone) == {"ledger"}


def test_an_hour_that_is_sliced_twice_is_found(world: World) -> None:
    granted, usage = another(world), first(world, UsageSliced)
    again = replace(usage, lease=replace(usage.lease, token=OTHER_LEASE))
    assert said(world, granted, again) == set()
    assert said(world, replace(again, used_gpu_ms=0)) == set()  # tokens alone
    assert said(world, again) == {"ledger"}


def test_a_checkpoint_before_the_start_is_found(world: World) -> None:
    granted = another(world)
    accepted = CheckpointAccepted(lease=granted.lease, checkpoint=checkpoint(10))
    assert said(world, granted, accepted) == {"token"}


def test_an_attempt_that_is_closed_more_often_than_it_was_queued_is_found(world: World) -> None:
    closed, queued = first(world, PlacementClosed), first(world, PlacementQueued)
    free = replace(closed.end, used_gpu_ms=0, billable_gpu_ms=0, lost_gpu_ms=0)
    assert said(world, queued, replace(closed, end=free)) == set()
    assert said(world, replace(closed, end=free)) == {"closed"}


def test_an_end_without_a_lease_that_costs_something_is_found(world: World) -> None:
    closed, queued = first(world, PlacementClosed), first(world, PlacementQueued)
    assert closed.end.billable_gpu_ms > 0
    assert said(world, queued, closed) == {"ledger"}


def test_a_heartbeat_without_a_sender_is_found(world: World) -> None:
    (member,) = first(world, LeaseGranted).members
    seen = NodeSeen(
        node_id=member.node_id,
        incarnation=member.incarnation,
        last_seen=world.at + 7,
        silent=False,
        leases=None,
    )
    assert said(world, NodesObserved(seen=(seen,))) == {"proof"}


def test_an_accepted_report_of_a_lease_that_is_over_is_found(world: World) -> None:
    granted, started = first(world, LeaseGranted), first(world, LeaseStarted)
    start = AttemptStart(loaded=None, loaded_step=0, skipped=(), total_steps=1)
    report = ReportStarted(
        token=granted.lease.token, incarnation=granted.members[0].incarnation, start=start
    )
    assert said(world, started, command=report) == {"token"}


def test_a_lease_is_held_until_its_money_and_its_slots_are_over(world: World) -> None:
    meter, granted = world.books.meter, another(world)
    world.books.meter.enter(Tick(), (granted,), world.at)
    assert set(meter.held) == {OTHER_LEASE.lease}
    freed = replace(first(world, MemberFreed), lease=granted.lease)
    world.books.meter.enter(Tick(), (freed,), world.at)
    assert set(meter.held) == {OTHER_LEASE.lease}
    meter.leases[OTHER_LEASE.lease].closed = True
    world.books.meter.enter(Tick(), (freed,), world.at)
    assert meter.held == {}


def test_a_meter_that_saw_no_node_accepts_no_lease_on_it(world: World) -> None:
    empty = Meter({}, {})
    queued, granted = first(world, PlacementQueued), first(world, LeaseGranted)
    empty.enter(Tick(), (queued, granted), world.at)
    assert {text.partition(":")[0] for text in empty.violations} == {"slots"}
