"""Fold of what the pool says to one node; leases of other nodes change nothing."""

from typing import assert_never

from immutables import Map
from msgspec.structs import replace

from schemas.assignments import Assigned, AssignedAll, AssignedLease, AssignedNode, LeaseOrder
from schemas.records import build_from
from schemas.streams import agent_of, key_number_of
from services.trainer.domain.state import Assignment, Grant, NodeState, TargetState

HARDNESS: dict[TargetState, int] = {"run": 0, "drain": 1, "kill": 2}


def evolve(state: NodeState, record: Assigned) -> NodeState:
    """The state after one more record, of any node of the pool."""
    if record.offset < state.offset:  # of an owner that has a successor
        return state
    state = replace(state, offset=record.offset)
    match record:
        case AssignedNode():
            return _with_node(state, record)
        case AssignedLease() if record.incarnation == state.incarnation:
            return _with_lease(state, record)
        case AssignedLease():
            return state
        case AssignedAll():
            is_missing = state.registered and state.node_offset < record.offset
            return replace(state, forgotten=state.forgotten or is_missing)
        case _:
            assert_never(record)


def _with_node(state: NodeState, record: AssignedNode) -> NodeState:
    if record.node_id in (state.node_id, agent_of(state.node_id)) and state.sender:
        withdrawn = record.withdrawn >= key_number_of(state.sender)
        state = replace(state, withdrawn=state.withdrawn or withdrawn)
    if record.node_id != state.node_id:
        return state
    is_mine = record.incarnation == state.incarnation
    was_mine = state.incarnation in record.former
    registered = state.registered or is_mine or was_mine
    held = {
        lease: assignment
        for lease, assignment in state.assignments.items()
        if lease in record.leases
    }
    return replace(
        state,
        node_offset=record.offset,
        registered=registered,
        replaced=state.replaced or was_mine,
        forgotten=state.forgotten or (registered and not record.incarnation),
        leaving=state.leaving or (is_mine and record.leaving),
        assignments=Map(held),
    )


def _with_lease(state: NodeState, record: AssignedLease) -> NodeState:
    """A lease that is new here has its order; later records of it say what has changed."""
    known = state.assignments.get(record.lease)
    if known is None:
        if record.order is None:
            return state
        known = _assignment(record.order, state.incarnation)
    changed = replace(
        known,
        target=max(known.target, record.target, key=HARDNESS.__getitem__),
        sealed_keys=record.sealed_keys or known.sealed_keys,
        rendezvous=record.rendezvous or known.rendezvous,
    )
    return replace(state, assignments=state.assignments.set(record.lease, changed))


def _assignment(order: LeaseOrder, incarnation: str) -> Assignment:
    member = next(each for each in order.members if each.incarnation == incarnation)
    return Assignment(
        grant=build_from(Grant, order, member=member),
        correlation=order.correlation,
        traceparent=order.traceparent,
    )
