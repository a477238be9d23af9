"""The second account of starts: when it objects, and when it does not."""

import pytest

from schemas.node import LeaseSeen, NodeSeen
from schemas.pool import LeaseGranted, LeaseKilled, LeaseRef, NodesObserved, Token
from schemas.reasons import ending
from simulator.control_plane.samples import MINUTE, POOL, T0
from simulator.control_plane.start_limits import StartLimits

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
