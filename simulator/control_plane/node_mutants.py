"""Rules of where leases go, and of nodes that end, one broken at a time."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from schemas.envelope import Context
from schemas.node import ForgetNode, NodeWarned, SpotGivenUp, WarnNode
from schemas.pool import Event, Placement
from schemas.reasons import ending
from schemas.training import LeaseHardware, NodeConstraints
from schemas.units import Ms
from services.scheduler.domain.pool import deadlines, evolve, nodes, planned_pool, price_classes
from services.scheduler.domain.pool import decide as pools
from services.scheduler.domain.pool.locality import domain_until_of
from services.scheduler.domain.pool.placement import PlannedGrant
from services.scheduler.domain.pool.price_classes import with_spot_given_up
from services.scheduler.domain.pool.state import Pool
from simulator.event_core.mutants import Mutant
from tunery.plan.scheduling import capacity, requests
from tunery.plan.scheduling.requests import Kind, RequestClass, demands

_suits, _warned, _order = capacity.suits, nodes.decide_warned, nodes.decide_order
_hardware, _fact = pools._hardware, pools._decide_fact


def _of_any_domain(asked: NodeConstraints | None, **_: bool) -> NodeConstraints:
    return demands(asked, any_domain=True)


def _at_once(placement: Placement, at: Ms) -> Ms | None:
    return None if domain_until_of(placement, at) is None else at


def _spot_or_not(kind: Kind, memory_bytes: int, needs: RequestClass) -> bool:
    """Jobs that want nodes that stay get spot nodes."""
    asked = needs.constraints
    if asked.spot is False:
        needs = dataclasses.replace(needs, constraints=replace(asked, spot=None))
    return _suits(kind, memory_bytes, needs)


def _still_spot(pool: Pool, event: SpotGivenUp) -> Pool:
    """A placement that would be late on spot nodes gets them all the same."""
    given_up = with_spot_given_up(pool, event)
    waiting = replace(given_up.waiting[event.job_id], spot=True)
    return replace(given_up, waiting=given_up.waiting.set(event.job_id, waiting))


def _never_kept_off(*_: Any) -> None:
    """A job that has lost spot nodes is given others of them."""


def _as_if_noticed(pool: Pool, command: Any, ctx: Context, *others: Any) -> tuple[Event, ...]:
    """Drain a node that is only warned, as if its machine were to be taken away."""
    events = _fact(pool, command, ctx, *others)
    if not isinstance(command, WarnNode) or not isinstance(next(iter(events), None), NodeWarned):
        return events
    return (*events, *nodes._drain(pool, command.node_id, ctx, "node", ending("node_noticed")))


def _warned_again(pool: Pool, command: WarnNode) -> tuple[Event, ...]:
    node = pool.nodes.get(command.node_id)
    if node is None:
        return _warned(pool, command)
    known = pool.nodes.set(command.node_id, replace(node, warned=False))
    return _warned(replace(pool, nodes=known), command)


def _never_warned(*fields: Any) -> Kind:
    """Warned nodes get leases as others do."""
    return Kind(*fields)._replace(warned=False)


def _nothing_drained(*_: Any) -> tuple[Event, ...]:
    return ()


def _although_up(pool: Pool, command: Any, ctx: Context) -> tuple[Event, ...]:
    """A node in service is forgotten."""
    is_order = isinstance(command, ForgetNode) and command.node_id in pool.nodes
    return nodes.forget(pool, command.node_id, ctx) if is_order else _order(pool, command, ctx)


def _of_all_models(*fields: Any) -> Kind:
    """A gang is leased over nodes of several models."""
    return Kind(*fields)._replace(accelerator="")


def _of_no_model(pool: Pool, grant: PlannedGrant) -> LeaseHardware | None:
    """Devices of a gang are priced as any."""
    return None if len(grant.members) > 1 else _hardware(pool, grant)


def _never_spot(pool: Pool, grant: PlannedGrant) -> LeaseHardware | None:
    hardware = _hardware(pool, grant)
    return None if hardware is None else replace(hardware, spot=False)


NODE_MUTANTS: Final[Sequence[Mutant]] = (
    Mutant("domains are ignored", planned_pool, "demands", _of_any_domain, "domain", seed=7),
    Mutant("domains are given up at once", pools, "domain_until_of", _at_once, "domain", seed=7),
    Mutant("spot nodes for all", capacity, "suits", _spot_or_not, "spot", seed=412),
    Mutant("late on spot nodes", evolve, "with_spot_given_up", _still_spot, "spot", seed=128),
    Mutant(
        "losses keep nobody off", price_classes, "kept_off_until", _never_kept_off, "spot", seed=65
    ),
    Mutant("warned nodes are drained", pools, "_decide_fact", _as_if_noticed, "warning", seed=118),
    Mutant("nodes are warned again", nodes, "decide_warned", _warned_again, "warning", seed=12),
    Mutant("warnings are ignored", requests, "Kind", _never_warned, "warning", seed=370),
    Mutant("a drain ends nothing", nodes, "_drain", _nothing_drained, "drain", seed=20),
    Mutant(
        "nodes in service are forgotten", nodes, "decide_order", _although_up, "forgotten", seed=20
    ),
    Mutant("nodes are forgotten at once", deadlines, "RETIRED_KEPT_MS", 0, "forgotten", seed=161),
    Mutant("a gang over two models", requests, "Kind", _of_all_models, "hardware", seed=6),
    Mutant("a gang has no model", pools, "_hardware", _of_no_model, "hardware", seed=6),
    Mutant(
        "spot devices at the price of others", pools, "_hardware", _never_spot, "hardware", seed=2
    ),
)
