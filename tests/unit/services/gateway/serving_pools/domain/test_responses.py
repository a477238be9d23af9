"""Response of a serving pool: states of its replicas."""

from msgspec.structs import replace

from schemas.reasons import refusing
from services.gateway.serving_pools.domain.responses import serving_pool_response
from services.gateway.views.tables.serving_pools import ReplicaRow, ServingPoolRow
from tests.unit.services.gateway.views.projections.test_serving_pools import POOL, TERMS

ROW = ServingPoolRow(tenant="acme", id=POOL, set_at=9_000, terms=TERMS, lane="standard")
WAITING = ReplicaRow(tenant="acme", id=f"{POOL}-1", serving_pool_id=POOL, begun_at=1_000)
STARTING = replace(WAITING, granted_at=2_000, node_id="a")
READY = replace(STARTING, started_at=3_000)


def test_each_replica_has_its_state_and_when_that_began() -> None:
    draining = replace(READY, draining=True)
    other = replace(READY, serving_pool_id="spool-2")
    shown = serving_pool_response(ROW, [WAITING, STARTING, READY, draining, other])
    assert [(term.state, term.since) for term in shown.terms] == [
        ("waiting", 1_000),
        ("starting", 2_000),
        ("ready", 3_000),
        ("draining", 3_000),
    ]
    assert (shown.ready, shown.term_minutes, shown.stalled) == (1, 1, None)


def test_a_missing_replica_has_a_reason_in_words() -> None:
    reason = refusing("serving_pools_at_most", limit=16)
    shown = serving_pool_response(replace(ROW, stalled_code="c", stalled_reason=reason), [])
    assert shown.stalled is not None
    assert "at most 16" in shown.stalled.message
