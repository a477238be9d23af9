"""How much premium may hold before others are served."""

from collections.abc import Mapping

from tunery.plan.scheduling.planning_state import PlanningState
from tunery.plan.scheduling.requests import PREMIUM, Kind, RequestClass


class PremiumCap:
    """The cap of premium while other lanes wait.

    The cap is all slots without those of the largest request that waits in another lane, but at
    least half of them: otherwise a small pool would have no premium lane. Premium goes first while
    it holds less than its cap. Then it is served after all other lanes, and stops nobody; but no
    slot stays free because of the cap. What a request itself needs does not count: premium gangs
    would wait for ever while small jobs come in all lanes.
    """

    __slots__ = ("_gangs", "_held", "_state")

    def __init__(self, state: PlanningState, held: Mapping[Kind, int]) -> None:
        """`held`: slots that premium holds, by kind of node. It may grow between two questions."""
        self._state, self._held = state, held
        self._gangs: dict[Kind, int] | None = None

    def is_beyond(self, needs: RequestClass, stopped: int = 0) -> bool:
        """Return whether premium holds its cap of the nodes that suit this class.

        stopped: slots of the largest lease that would be stopped for it, and would wait then.
        """
        capacity, policy = self._state.capacity, self._state.policy
        kinds = capacity.kinds(needs)
        held = sum(self._held.get(kind, 0) for kind in kinds)
        slots_max = policy.premium_slots_max
        if slots_max is not None and held + needs.slots > slots_max:
            return True
        total = sum(capacity.slots_of(kind) for kind in kinds)
        if not policy.premium_capped or 2 * held < total or total == 0:
            return False
        gangs = self._gangs_of_others()
        gang = max(stopped, *(gangs.get(kind, 0) for kind in kinds))
        return gang > 0 and held >= total - gang

    def _gangs_of_others(self) -> dict[Kind, int]:
        """For each kind of node, slots of the largest request of another lane that fits on it."""
        if self._gangs is None:
            self._gangs = {}
            capacity = self._state.capacity
            others = {needs for lane in self._state.queue.lanes[PREMIUM + 1 :] for needs in lane}
            for needs in others:
                kinds = capacity.kinds(needs)
                if self._state.policy.spanning and not needs.on_one_node:
                    largest = sum(capacity.slots_of(kind) for kind in kinds)
                else:
                    largest = capacity.largest(needs)
                if needs.slots <= largest:
                    for kind in kinds:
                        self._gangs[kind] = max(self._gangs.get(kind, 0), needs.slots)
        return self._gangs
