"""A record decided again: what was planned in it, and the state as an owner reads it."""

from typing import Any

import msgspec

from schemas.envelope import Context
from schemas.node import NodeCordoned
from services.scheduler.domain.pool.evolve import evolve_pool
from services.scheduler.domain.pool.planned_pool import PlannedPool
from services.scheduler.domain.pool.state import Pool, Pools
from simulator.control_plane.samples import POOL
from tunery.cli.simulate.journals import split_decisions
from tunery.plan.scheduling.plan import Plan, plan
from tunery.runtime.journal.codec import canonical
from tunery.runtime.journal.snapshots import revive


def planned_before(before: Pools, events: tuple[Any, ...], context: Context) -> Plan:
    """Plan of production in a record, on the state after its facts."""
    pool = before.get(POOL, Pool())
    facts, decisions = split_decisions(pool, events, context)
    for event in (*facts, *(each for each in decisions if isinstance(each, NodeCordoned))):
        pool = evolve_pool(pool, event, context)
    return plan(PlannedPool(pool).state, context.at)


def through_snapshot(state: Pools) -> Pools:
    """The state as an owner reads it that takes over."""
    plain = msgspec.json.decode(canonical(state))
    revived: Pools = msgspec.convert(plain, Pools, dec_hook=revive)
    return revived
