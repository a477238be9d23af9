"""Fabric domains: who waits for nodes of one, and for how long."""

from typing import Any

from msgspec.structs import replace

from schemas.envelope import Tick
from schemas.node import CordonNode, DomainGivenUp
from schemas.pool import LeaseGranted, PlacementClosed, PlacementQueued, RegisterNode
from schemas.training import NodeConstraints
from services.scheduler.app import POOLS
from simulator.control_plane.samples import MINUTE, POOL, T0, describe, node, request
from tests.ticks import next_tick
from tests.unit.services.scheduler.fold import Decider, of

HARD = NodeConstraints(domain="rack-1")
SOFT = replace(HARD, domain_wait_ms=10 * MINUTE)


def pool_of(*domains: str) -> Decider:
    """Nodes `a`, `b`, … of these domains, with a slot each, and the works of some jobs."""
    jobs = ("first", "j", "k")
    decider = Decider(POOLS, POOL, T0).accept(*(describe(job_id) for job_id in jobs))
    for number, domain in enumerate(domains):
        name = chr(ord("a") + number)
        described = replace(node(name, f"{name}-1", 1).node, domain=domain)
        decider.accept(RegisterNode(node=described))
    return decider


def nodes_of(events: Any) -> list[str]:
    """Nodes of the leases that are granted, in order."""
    grants = [event for event in events if isinstance(event, LeaseGranted)]
    return [member.node_id for grant in grants for member in grant.members]


def test_a_job_gets_a_node_of_its_domain_or_waits_for_one() -> None:
    decider = pool_of("rack-0", "rack-1")
    assert nodes_of(decider.when(request("first", constraints=HARD))) == ["b"]
    decided = decider.when(request("j", constraints=HARD))
    assert nodes_of(decided) == []
    assert of(decided, PlacementQueued).domain_until is None
    assert nodes_of(decider.when(request("k"))) == ["a"], "it named none"


def test_after_its_wait_a_job_takes_a_node_of_any_domain() -> None:
    decider = pool_of("rack-0", "rack-1").accept(request("first", constraints=HARD))
    decided = decider.when(request("j", constraints=SOFT))
    assert nodes_of(decided) == []
    until = of(decided, PlacementQueued).domain_until
    assert until == decider.at + 10 * MINUTE
    decider.at = until - 1
    assert not [each for each in decider.when(Tick()) if isinstance(each, DomainGivenUp)]
    decider.at = until
    due = next_tick(POOLS, decider.state)
    assert due is not None
    assert due[0] <= until
    decided = decider.when(Tick())
    assert of(decided, DomainGivenUp).job_id == "j"
    assert nodes_of(decided) == ["a"]
    assert not decider.state[POOL].domain_until


def test_a_wait_ends_with_the_start_of_the_job() -> None:
    decider = pool_of("rack-0", "rack-1").accept(CordonNode(node_id="b"))
    decider.accept(request("j", constraints=SOFT))
    assert decider.state[POOL].domain_until
    described = replace(node("c", "c-1", 1).node, domain="rack-1")
    assert nodes_of(decider.when(RegisterNode(node=described))) == ["c"]
    assert not decider.state[POOL].domain_until


def test_a_job_that_is_larger_than_every_node_of_its_domain_ends() -> None:
    decider = pool_of("rack-1").accept(
        RegisterNode(node=replace(node("z", "z-1", 8).node, domain="rack-0"))
    )
    decided = decider.when(request("j", slots=4, constraints=HARD))
    assert of(decided, PlacementClosed).end.reason.code == "slots_above_largest"
    assert nodes_of(decider.when(request("k", slots=4, constraints=SOFT))) == []
    decider.at += 10 * MINUTE
    assert nodes_of(decider.when(Tick())) == ["z"]
