"""The fold of serving pools: what is remembered of them and of their terms."""

from schemas.pool import AttemptEnd
from schemas.reasons import ending, refusing
from schemas.serving import (
    ServingPoolRemoved,
    ServingPoolStalled,
    ServingTermBegun,
    ServingTermDraining,
    ServingTermEnded,
)
from services.scheduler.domain.job.serving_state import EXCLUDED_MAX
from services.scheduler.domain.pool.faults import EXCLUDED_MS
from simulator.control_plane.samples import POOL, limits
from tests.unit.services.scheduler.domain.job.test_serving import closed, wanted
from tests.unit.services.scheduler.fold import of
from tests.unit.services.scheduler.lives import TENANT, new_tenant

ENDED = AttemptEnd(outcome="lost", ended_by="node", reason=ending("node_lost"))


def test_events_of_what_is_not_known_change_nothing() -> None:
    decider = new_tenant().accept(limits())
    before = decider.state
    decider.fold(
        ServingPoolRemoved(serving_pool_id="sp_x"),
        ServingPoolStalled(
            serving_pool_id="sp_x", code="hard_limit", reason=refusing("limits_missing")
        ),
        ServingTermDraining(term_id="sp_x-1"),
        ServingTermEnded(
            term_id="sp_x-1", serving_pool_id="sp_x", pool=POOL, end=ENDED, released_gpu_ms=0
        ),
    )
    assert decider.state == before


def test_nodes_at_fault_are_kept_away_from_each_once_and_so_many() -> None:
    decider = new_tenant().accept(limits(), wanted(1))
    decider.accept(closed("sp_1-1", "failed", "bad_node"), closed("sp_1-2", "failed", "bad_node"))
    pool = decider.state[TENANT].serving_pools["sp_1"]
    assert (pool.excluded_nodes, pool.failures, EXCLUDED_MAX) == (("a",), 2, 16)
    decider.accept(wanted(1))
    pool = decider.state[TENANT].serving_pools["sp_1"]
    assert (pool.excluded_nodes, pool.failures) == ((), 0)


def test_an_excluded_node_is_tried_again_after_a_while() -> None:
    decider = new_tenant().accept(limits(), wanted(1), closed("sp_1-1", "failed", "bad_node"))
    decider.at += EXCLUDED_MS - 1
    events = decider.when(closed("sp_1-2", "preempted"))
    assert of(events, ServingTermBegun).placement.excluded_nodes == ("a",)
    decider.at += 1
    events = decider.when(closed("sp_1-3", "preempted"))
    assert of(events, ServingTermBegun).placement.excluded_nodes == ()
    assert decider.refolded() == decider.state
