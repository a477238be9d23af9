"""Books of placements find leases that go where they must not, and orders without effect."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas.envelope import Tick
from schemas.node import (
    DomainGivenUp,
    DrainNode,
    NodeDescription,
    NodeForgotten,
    NodeWarned,
    WarnNode,
)
from schemas.pool import (
    LeaseGranted,
    LeaseKilled,
    LeaseMember,
    LeaseRef,
    NodeRegistered,
    NodeRetired,
    PlacementQueued,
    Token,
)
from schemas.reasons import ending
from schemas.training import LeaseHardware, NodeConstraints
from schemas.units import DAY_MS
from simulator.control_plane.placement_books import PlacementBooks
from simulator.control_plane.samples import POOL, SLOT_BYTES, T0, request

EAST = NodeConstraints(domain="east", domain_wait_ms=1_000)


def node(name: str, **fields: Any) -> NodeRegistered:
    described = NodeDescription(
        node_id=name, incarnation="i", slots=2, device="cpu", memory_bytes=SLOT_BYTES, **fields
    )
    return NodeRegistered(node=described)


def queued(constraints: NodeConstraints | None = None, **fields: Any) -> PlacementQueued:
    placement = replace(request("ftjob-1").placement, constraints=constraints)
    return PlacementQueued(placement=placement, **fields)


def granted(name: str, hardware: LeaseHardware | None = None) -> LeaseGranted:
    ref = LeaseRef(
        token=Token(pool=POOL, lease=1),
        tenant="acme",
        job_id="ftjob-1",
        attempt=1,
        role="train",
        lane="standard",
        price_version="2026-11",
        hardware=hardware,
    )
    member = LeaseMember(node_id=name, incarnation="i", slots=1, devices=(0,))
    return LeaseGranted(lease=ref, members=(member,), notice_ms=1)


KILLED = LeaseKilled(lease=granted("n").lease, ended_by="node", reason=ending("node_noticed"))
SPOT = LeaseHardware(spot=True)


def violated(*decisions: tuple[Any, tuple[Any, ...]]) -> list[str]:
    books = PlacementBooks()
    for command, events in decisions:
        books.enter(command, events, T0)
    return [violation.partition(":")[0] for violation in books.violations]


def test_a_lease_that_goes_where_it_may_is_no_violation() -> None:
    waits = queued(EAST, domain_until=T0 + 1_000)
    assert violated((None, (node("n", domain="east"), waits, granted("n")))) == []
    drained = (DrainNode(node_id="n"), (KILLED,))
    assert violated((None, (node("n"), queued(), granted("n"))), drained) == []


@pytest.mark.parametrize(
    ("invariant", "decisions"),
    [
        ("domain", ((None, (node("n"), queued(EAST, domain_until=T0 + 1_000), granted("n"))),)),
        ("domain", ((None, (queued(EAST),)),)),
        (
            "early",
            ((None, (queued(EAST, domain_until=T0 + 1_000), DomainGivenUp(job_id="ftjob-1"))),),
        ),
        (
            "spot",
            (
                (
                    None,
                    (
                        node("n", spot=True),
                        queued(NodeConstraints(spot=False)),
                        granted("n", SPOT),
                    ),
                ),
            ),
        ),
        ("hardware", ((None, (node("n", accelerator="h1"), queued(), granted("n"))),)),
        ("warning", ((None, (node("n"), NodeWarned(node_id="n"), NodeWarned(node_id="n"))),)),
        (
            "warning",
            (
                (None, (node("n"), queued(), granted("n"))),
                (WarnNode(node_id="n", incarnation="i"), (NodeWarned(node_id="n"), KILLED)),
            ),
        ),
        (
            "warning",
            ((None, (node("n"), node("idle"), NodeWarned(node_id="n"), queued(), granted("n"))),),
        ),
        (
            "drain",
            ((None, (node("n"), queued(), granted("n"))), (DrainNode(node_id="n"), ())),
        ),
        ("forgotten", ((None, (node("n"), NodeForgotten(node_id="n"))),)),
        (
            "forgotten",
            (
                (None, (node("n"), NodeRetired(node_id="n"))),
                (Tick(), (NodeForgotten(node_id="n"),)),
            ),
        ),
    ],
)
def test_review2_w1_what_contradicts_the_books_is_found(
    invariant: str, decisions: tuple[tuple[Any, tuple[Any, ...]], ...]
) -> None:
    assert violated(*decisions) == [invariant]


def test_a_node_that_was_gone_for_a_day_may_be_forgotten() -> None:
    books = PlacementBooks()
    books.enter(None, (node("n"), NodeRetired(node_id="n")), T0)
    books.enter(Tick(), (NodeForgotten(node_id="n"),), T0 + DAY_MS)
    assert books.violations == []
