"""Given events of `pool`, then rows of nodes and of use."""

from msgspec.structs import replace

from schemas.pool import (
    NodeLost,
    NodeRegistered,
    NodeSeen,
    NodesObserved,
    Token,
    UsageCredited,
    UsageSliced,
)
from services.gateway.jobs.tables import NODES, USAGE
from tests.unit.services.gateway.view_rows import folded, only, rows

SLICE = UsageSliced(
    token=Token(pool="default", lease=7),
    tenant="acme",
    job_id="ftjob-1",
    attempt=1,
    role="train",
    lane="premium",
    price_version="2026-11",
    hour=13,
    used_gpu_ms=8_400_000,
    billable_gpu_ms=8_000_000,
)
CREDIT = UsageCredited(
    token=Token(pool="default", lease=7),
    tenant="acme",
    job_id="ftjob-1",
    attempt=1,
    role="train",
    lane="premium",
    price_version="2026-11",
    hour=13,
    lost_gpu_ms=560_000,
    cause="lost",
)


def test_usage_and_credit_are_lines_of_their_own() -> None:
    lines = rows(folded("pool", SLICE, CREDIT, key="default"), USAGE)
    assert sorted((line.kind, line.billable_gpu_ms) for line in lines) == [
        ("credit", -560_000),
        ("usage", 8_000_000),
    ]
    assert {line.tenant for line in lines} == {"acme"}


def test_a_lost_node_is_not_alive_until_it_registers_again() -> None:
    registered = NodeRegistered(node_id="a", incarnation="i", slots=1, device="cpu", memory_bytes=1)
    lost = NodeLost(node_id="a", incarnation="i", last_seen=1)
    assert only(folded("pool", registered, lost), NODES).state == "lost"
    assert only(folded("pool", registered, lost, registered), NODES).state == "alive"


def test_lost_node_that_is_observed_again_is_alive() -> None:
    registered = NodeRegistered(
        node_id="a", incarnation="i", slots=1, device="cuda", memory_bytes=1
    )
    lost = NodeLost(node_id="a", incarnation="i", last_seen=1)
    seen = NodeSeen(node_id="a", incarnation="i", last_seen=2, silent=False)
    back = NodesObserved(seen=(seen,))
    assert only(folded("pool", registered, lost, back), NODES).state == "alive"
    silent = NodesObserved(seen=(replace(seen, silent=True),))
    assert only(folded("pool", registered, lost, silent), NODES).state == "lost"
