"""Given events of `pool`, then rows of nodes and of use."""

from msgspec.structs import replace

from schemas.node import NodeDescription, NodeSeen
from schemas.pool import (
    LeaseRef,
    NodeLost,
    NodeRegistered,
    NodesObserved,
    Token,
    UsageCredited,
    UsageSliced,
)
from services.gateway.views.tables.jobs import NODES, USAGE
from tests.unit.services.gateway.view_rows import folded, only, rows

LEASE = LeaseRef(
    token=Token(pool="default", lease=7),
    tenant="acme",
    job_id="ftjob-1",
    attempt=1,
    role="train",
    lane="premium",
    price_version="2026-11",
)
SLICE = UsageSliced(lease=LEASE, hour_utc=13, used_gpu_ms=8_400_000, billable_gpu_ms=8_000_000)
CREDIT = UsageCredited(lease=LEASE, hour_utc=13, lost_gpu_ms=560_000, cause="lost")
NODE = NodeDescription(node_id="a", incarnation="i", slots=1, device="cpu", memory_bytes=1)
REGISTERED = NodeRegistered(node=NODE)


def test_usage_and_credit_are_lines_of_their_own() -> None:
    lines = rows(folded("pool", SLICE, CREDIT, key="default"), USAGE)
    assert sorted((line.kind, line.billable_gpu_ms) for line in lines) == [
        ("credit", -560_000),
        ("usage", 8_000_000),
    ]
    assert {line.tenant for line in lines} == {"acme"}


def test_slices_of_one_lease_and_hour_are_lines_of_their_own_with_their_place() -> None:
    more = replace(SLICE, used_gpu_ms=1, billable_gpu_ms=1)
    lines = rows(folded("pool", SLICE, more, key="default"), USAGE)
    assert [line.billable_gpu_ms for line in sorted(lines, key=lambda line: line.id)] == [
        8_000_000,
        1,
    ]
    assert [(line.journal_partition, line.incarnation, line.journal_offset) for line in lines] == [
        (0, 0, 1),
        (0, 0, 2),
    ]


def test_a_lost_node_is_not_alive_until_it_registers_again() -> None:
    lost = NodeLost(node_id="a", incarnation="i", last_seen=1)
    assert only(folded("pool", REGISTERED, lost), NODES).state == "lost"
    assert only(folded("pool", REGISTERED, lost, REGISTERED), NODES).state == "alive"


def test_lost_node_that_is_observed_again_is_alive() -> None:
    lost = NodeLost(node_id="a", incarnation="i", last_seen=1)
    seen = NodeSeen(node_id="a", incarnation="i", last_seen=2, silent=False)
    back = NodesObserved(seen=(seen,))
    assert only(folded("pool", REGISTERED, lost, back), NODES).state == "alive"
    silent = NodesObserved(seen=(replace(seen, silent=True),))
    assert only(folded("pool", REGISTERED, lost, silent), NODES).state == "lost"
