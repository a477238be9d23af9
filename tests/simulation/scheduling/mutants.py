"""The scheduler with one promise broken at a time. Each is caught by the rule that it breaks."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from msgspec import structs

from schemas.pool import LeaseMember, NodeLost
from schemas.training import NodeConstraints
from schemas.units import DAY_MS
from services.scheduler.domain.pool import (
    closing,
    decide,
    evolve,
    nodes,
    placement,
    planned_pool,
    price_classes,
    succession,
    usage,
)
from services.scheduler.domain.pool import state as pool_state
from services.scheduler.domain.pool.planned_pool import POLICY
from services.scheduler.domain.pool.state import Lease, Node, Pool
from services.scheduler.domain.pool.usage import Slice
from simulator.event_core.mutants import Mutant
from tests.simulation.scheduling.asks import TAINT
from tests.simulation.scheduling.rules import Rule
from tunery.plan.scheduling import capacity, explanation, forecast, outlook, victims
from tunery.plan.scheduling import plan as plan_module
from tunery.plan.scheduling.capacity import Capacity
from tunery.plan.scheduling.draft import Draft
from tunery.plan.scheduling.planning_state import PlanningState
from tunery.plan.scheduling.premium_cap import PremiumCap
from tunery.plan.scheduling.queue import Queue
from tunery.plan.scheduling.requests import RequestClass, Seats

_free_devices = pool_state.free_devices


def _first_again(node: Node, leases: Iterable[Lease]) -> list[int]:
    """As many devices as are free, by their number from 0, whatever runs there."""
    return [*range(len(_free_devices(node, leases)))]


_member = placement._member


def _half_of_it(pool: Pool, node_id: str, free: list[int], slots: int) -> LeaseMember:
    """A start gets what half of its slots are."""
    return _member(pool, node_id, free, max(1, slots // 2))


_kinds = Capacity.kinds


def _any_kind(self: Capacity, needs: RequestClass) -> list[Any]:
    return sorted(self._buckets)


def _any_model(self: Capacity, needs: RequestClass) -> list[Any]:
    return _kinds(self, replace(needs, constraints=NodeConstraints()))


def _whatever_taints(self: Capacity, needs: RequestClass) -> list[Any]:
    tolerant = structs.replace(needs.constraints, tolerations=(TAINT,))
    return _kinds(self, replace(needs, constraints=tolerant))


def _nowhere(*_: Any) -> frozenset[str]:
    """No node is outside of a domain."""
    return frozenset()


def _is_up(node: Any) -> bool:
    """Cordoned nodes get leases as well."""
    return bool(node.standing == "up" and not node.joining and not node.leaving)


def _is_not_leaving(node: Any) -> bool:
    """Nodes whose machines are taken away get leases as well."""
    is_in_service = node.standing == "up" and node.cordon is None
    return bool(is_in_service and not node.joining and not node.leaving)


def _drain_nothing(*_: Any) -> tuple[()]:
    """Let work go on when its machine is taken away."""
    return ()


def _is_not_cordoned(node: Any) -> bool:
    """Nodes that leave get leases as well."""
    return bool(node.standing == "up" and node.cordon is None and not node.joining)


def _fit_beside_it(self: Any, request: Any) -> Seats | None:
    """Start what fits, whatever is reserved."""
    return self._draft.free.find_seats(request.needs)  # type: ignore[no-any-return]  # of `Capacity`


def _all_of(self: Any, needs: RequestClass) -> Any:
    """Any reservation is in the way of everybody."""
    return self._reservations


def _last_first(self: Queue, request: Any) -> tuple[int, int, str]:
    return (-request.submitted_at, request.submitted_at, request.job_id)


def _excluded_for_ever(self: Capacity, needs: RequestClass) -> frozenset[str]:
    """Nodes that failed under a job are never tried again."""
    return frozenset((*needs.excluded, *needs.barred))


_slices = usage.slices


def _without_cap(*args: Any) -> tuple[Slice, ...]:
    return tuple(replace(part, billable_gpu_ms=part.used_gpu_ms) for part in _slices(*args))


def _at_any_loss(*_: Any) -> int:
    return 1


_find_eviction = victims.find_eviction


def _all_on_node(victims_: Any, node_id: str, missing: int) -> Any:
    """All that may be stopped on a node is."""
    chosen = tuple(sorted(victim.key for victim in victims_))
    return (sum(victim.loss for victim in victims_), len(chosen), chosen)


def _of_any_lane(draft: Draft, request: Any) -> Any:
    """A request of any lane may stop those of the standard lane."""
    return _find_eviction(draft, replace(request, lane=0))


def _unbound(self: PlanningState, job_id: str, seats: Seats) -> None:
    """Slots that are freed for a request are for whoever comes first."""


def _unfollowed(pool: Pool, *_: Any) -> Pool:
    """Slots that a training frees are for whoever comes first."""
    return pool


_find_seats = Capacity.find_seats


def _first_known(self: Capacity, needs: RequestClass) -> Seats | None:
    """The node that was described first, of those that fit."""
    seats = _find_seats(self, needs)
    if seats is None or len(seats) > 1:
        return seats
    fitting = (name for name, free in self.free.items() if free >= needs.slots)
    return ((next(fitting), needs.slots),)


def _nothing_kept(billable: int, slots: int, kept_ms: int) -> int:
    return billable


_forecast = forecast.forecast


def _yesterday(*args: Any) -> dict[str, int]:
    return {job_id: at - DAY_MS for job_id, at in _forecast(*args).items()}


def _not_ended(pool: Pool, seen: Any, leases: Any, ctx: Any) -> list[Any]:
    """A lost node's leases go on."""
    last_seen = pool.nodes[seen.node_id].last_seen
    lost = NodeLost(node_id=seen.node_id, incarnation=seen.incarnation, last_seen=last_seen)
    return [lost] if pool.nodes[seen.node_id].standing == "up" else []


def _never_late(*_: Any) -> tuple[()]:
    """No request for whole nodes is late, however long it has waited."""
    return ()


def _without_limit(*_: Any) -> bool:
    """Premium always goes first."""
    return False


def _never(*_: Any) -> None:
    """No deadline for spot nodes or domains, and no time for which losses keep a job off them."""


def _as_if_there_were(*_: Any) -> bool:
    """Let a job that is kept off spot nodes wait for others, even if there are none."""
    return True


_BLOCKED: Final = replace(POLICY, skipping=False, reserving=False)

#: Of pools, through all of the decider.
OF_POOLS: Final[Sequence[Mutant]] = (
    Mutant("the first devices again", placement, "free_devices", _first_again, Rule.CAPACITY),
    Mutant("half of a start", placement, "_member", _half_of_it, Rule.GANG),
    Mutant("any kind of device", Capacity, "kinds", _any_kind, Rule.LEGAL),
    Mutant("any model of device", Capacity, "kinds", _any_model, Rule.LEGAL),
    Mutant("taints for anybody", Capacity, "kinds", _whatever_taints, Rule.LEGAL),
    Mutant("nodes of any domain", Capacity, "_outside_of", _nowhere, Rule.LOCALITY),
    Mutant("a domain for ever", decide, "domain_until_of", _never, Rule.LOCALITY),
    Mutant("cordoned nodes", pool_state.Node, "is_grantable", property(_is_up), Rule.LEGAL),
    Mutant("one waits, all wait", planned_pool, "POLICY", _BLOCKED, Rule.IDLE),
    Mutant("one reservation for all", plan_module._Pass, "_reservations_of", _all_of, Rule.OWNER),
    Mutant("excluded for ever", Capacity, "excluded", _excluded_for_ever, Rule.STARVATION),
    Mutant("no others to wait for", Capacity, "_has_others", _as_if_there_were, Rule.STARVATION),
    Mutant("the last come first", Queue, "rank", _last_first, Rule.RANK, seed=2),
    Mutant("billed above the cap", closing, "slices", _without_cap, Rule.USE, seed=5),
    Mutant("victims at any loss", outlook, "loss_ms", _at_any_loss, Rule.VICTIM, seed=5),
    Mutant("freed slots for anybody", PlanningState, "bind", _unbound, Rule.BOUND, seed=4),
    Mutant(
        "victims of any lane", plan_module, "find_eviction", _of_any_lane, Rule.FLAPPING, seed=4
    ),
    Mutant("expected in the past", explanation, "forecast", _yesterday, Rule.REASON),
    Mutant("memory that is not there", Capacity, "has_memory", lambda *_: True, Rule.LEGAL, seed=4),
    Mutant("saved work given back", closing, "lost_gpu_ms", _nothing_kept, Rule.PROGRESS),
    Mutant(
        "back on spot nodes at once", price_classes, "kept_off_until", _never, Rule.SPOT, seed=2
    ),
    Mutant("spot nodes for anybody", capacity, "SPOT", -1, Rule.SPOT),
    Mutant("late on spot nodes", price_classes, "spot_until", _never, Rule.SPOT, seed=12),
    Mutant("lost and not ended", nodes, "_silence", _not_ended, Rule.LOST),
    Mutant("noticed nodes", pool_state.Node, "is_grantable", property(_is_not_leaving), Rule.LOST),
    Mutant("a notice that nobody hears", nodes, "_drain", _drain_nothing, Rule.LOST),
    Mutant(
        "nodes that leave", pool_state.Node, "is_grantable", property(_is_not_cordoned), Rule.LOST
    ),
)

#: Of pools whose trainings have evaluations.
OF_EVALUATIONS: Final[Sequence[Mutant]] = (
    Mutant("slots of a training for anybody", evolve, "with_follower", _unfollowed, Rule.BOUND),
    Mutant("slots kept for days", succession, "KEPT_MS", DAY_MS, Rule.IDLE),
)

#: Of clusters with gangs, through the planner alone.
OF_CLUSTERS: Final[Sequence[Mutant]] = (
    Mutant("past the reservation", plan_module._Pass, "_fit", _fit_beside_it, Rule.HEAD),
    Mutant("nobody is late", plan_module, "overdue", _never_late, Rule.KEPT),
    Mutant("premium without a cap", PremiumCap, "is_beyond", _without_limit, Rule.CAP),
    Mutant("victims more than needed", victims, "least_loss", _all_on_node, Rule.VICTIM),
    Mutant("the first node described", Capacity, "find_seats", _first_known, Rule.SAME),
)
