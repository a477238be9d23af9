"""Fold of the `pool` journal for one node; leases of other nodes change nothing."""

from msgspec.structs import replace

from schemas import pool
from services.trainer.domain.state import Assignment, NodeState, TargetState

HARDNESS: dict[TargetState, int] = {"run": 0, "drain": 1, "kill": 2}


def evolve(state: NodeState, event: pool.Event) -> NodeState:
    """The state after one more event."""
    match event:
        case pool.NodeRegistered() if event.node_id == state.node_id:
            mine = event.incarnation == state.incarnation
            return replace(
                state,
                registered=state.registered or mine,
                replaced=state.replaced or (state.registered and not mine),
            )
        case pool.LeaseGranted() if event.incarnation == state.incarnation:
            grant = Assignment(grant=event)
            return replace(state, assignments=state.assignments.set(event.token.lease, grant))
        case pool.LeaseDraining():
            return _harden(state, event.token.lease, "drain")
        case pool.LeaseKilled():
            return _harden(state, event.token.lease, "kill")
        case pool.PlacementClosed():
            return _closed(state, event)
        case pool.SlotsFreed():
            return _freed(state, event.token.lease)
        case _:
            return state


def _harden(state: NodeState, lease: int, target: TargetState) -> NodeState:
    assignment = state.assignments.get(lease)
    if assignment is None or HARDNESS[assignment.target] >= HARDNESS[target]:
        return state
    hardened = replace(assignment, target=target)
    return replace(state, assignments=state.assignments.set(lease, hardened))


def _closed(state: NodeState, event: pool.PlacementClosed) -> NodeState:
    """What still runs under the lease of a closed placement is of no use any more."""
    for lease, assignment in state.assignments.items():
        grant = assignment.grant
        same_job = (grant.tenant, grant.job_id) == (event.tenant, event.job_id)
        if same_job and grant.attempt == event.attempt:
            return _harden(state, lease, "kill")
    return state


def _freed(state: NodeState, lease: int) -> NodeState:
    if lease not in state.assignments:
        return state
    return replace(state, assignments=state.assignments.delete(lease))
