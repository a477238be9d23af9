"""Fold of the `pool` journal for one node; leases of other nodes change nothing."""

from typing import Any, TypeVar

from immutables import Map
from msgspec.structs import replace

from schemas import pool
from schemas.envelope import Reason, Rejected
from schemas.lease_keys import LeaseKeysSealed
from schemas.node import NodeForgotten, NodeKeysWithdrawn, NodeLeaving
from schemas.streams import agent_of, key_number_of
from schemas.works import WorkForgotten, WorkKept
from services.trainer.domain.state import Assignment, Grant, NodeState, TargetState

V = TypeVar("V")

HARDNESS: dict[TargetState, int] = {"run": 0, "drain": 1, "kill": 2}


def evolve(state: NodeState, event: pool.Event) -> NodeState:
    """The state after one more event."""
    match event:
        case pool.NodeRegistered() if event.node.node_id == state.node_id:
            mine = event.node.incarnation == state.incarnation
            return replace(
                state,
                registered=state.registered or mine,
                replaced=state.replaced or (state.registered and not mine),
            )
        case NodeKeysWithdrawn() if event.node_id == agent_of(state.node_id) and state.sender:
            withdrawn = event.number >= key_number_of(state.sender)
            return replace(state, withdrawn=state.withdrawn or withdrawn)
        case Rejected(reason=Reason(code="sender_withdrawn", params=params)) if state.sender:
            withdrawn = params.get("sender") == state.sender
            return replace(state, withdrawn=state.withdrawn or withdrawn)
        case NodeForgotten() if event.node_id == state.node_id:
            return replace(state, forgotten=state.registered)
        case NodeLeaving() if event.node_id == state.node_id:
            return replace(state, leaving=state.registered)
        case WorkKept():
            job_id = event.description.job_id
            works = (*state.works.get(job_id, ()), event.description)
            return replace(state, works=state.works.set(job_id, works))
        case WorkForgotten():
            return replace(state, works=_without(state.works, event.job_id))
        case pool.PlacementQueued():
            placement = event.placement
            return replace(state, placements=state.placements.set(placement.job_id, placement))
        case pool.LeaseGranted():
            return _granted(state, event)
        case LeaseKeysSealed() if event.holder.incarnation == state.incarnation:
            return _changed(state, event.holder.lease, sealed_keys=event.sealed_keys)
        case pool.RendezvousOpened():
            return _changed(state, event.lease.token.lease, rendezvous=event.rendezvous)
        case pool.LeaseDraining():
            return _harden(state, event.lease.token.lease, "drain")
        case pool.LeaseKilled():
            return _harden(state, event.lease.token.lease, "kill")
        case pool.PlacementClosed():
            return _closed(state, event)
        case pool.MemberFreed() if event.node_id == state.node_id:
            return _freed(state, event.lease.token.lease)
        case _:
            return state


def _granted(state: NodeState, event: pool.LeaseGranted) -> NodeState:
    """The placement leaves the queue; a member of this incarnation is an assignment."""
    lease = event.lease
    placement = state.placements.get(lease.job_id)
    if placement is None or placement.attempt != lease.attempt:
        return state
    state = replace(state, placements=state.placements.delete(lease.job_id))
    member = next((m for m in event.members if m.incarnation == state.incarnation), None)
    works = state.works.get(lease.job_id, ())
    work = next((known.work for known in works if known.work_id == placement.work_id), None)
    if member is None or work is None:
        return state
    grant = Grant(lease=lease, member=member, placement=placement, work=work, members=event.members)
    assignments = state.assignments.set(lease.token.lease, Assignment(grant=grant))
    return replace(state, assignments=assignments)


def _changed(state: NodeState, lease: int, **fields: Any) -> NodeState:
    """With other values of an assignment's fields; nothing changes for a lease of other agents."""
    assignment = state.assignments.get(lease)
    if assignment is None:
        return state
    changed = replace(assignment, **fields)
    return replace(state, assignments=state.assignments.set(lease, changed))


def _without(entries: Map[str, V], key: str) -> Map[str, V]:
    return entries.delete(key) if key in entries else entries


def _harden(state: NodeState, lease: int, target: TargetState) -> NodeState:
    assignment = state.assignments.get(lease)
    if assignment is None or HARDNESS[assignment.target] >= HARDNESS[target]:
        return state
    return _changed(state, lease, target=target)


def _closed(state: NodeState, event: pool.PlacementClosed) -> NodeState:
    """Drop a closed placement; kill the lease that still runs for it."""
    waiting = state.placements.get(event.job_id)
    if waiting is not None and waiting.attempt == event.attempt:
        return replace(state, placements=state.placements.delete(event.job_id))
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
