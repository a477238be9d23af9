"""Records of the topic `assignments`, computed from the state of a pool.

After each decision those that it concerns, and at the begin of an owner's term all of them. Both
say the same: an agent that has read either knows what its node should run.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from schemas.assignments import Assigned, AssignedAll, AssignedLease, AssignedNode, LeaseOrder
from schemas.envelope import Rejected
from schemas.lease_keys import LeaseKeysSealed
from schemas.node import NodeForgotten, NodeKeysWithdrawn, NodeLeaving
from schemas.pool import (
    Event,
    LeaseDraining,
    LeaseGranted,
    LeaseKilled,
    LeaseMember,
    MemberFreed,
    NodeRegistered,
    PlacementClosed,
    RendezvousOpened,
)
from schemas.streams import GLOBAL, agent_of, node_of
from services.scheduler.domain.pool.state import (
    Lease,
    Pool,
    Pools,
    held_members,
    lease_key,
    leases_on,
    withdrawn_keys,
)


def assigned_after(
    pools: Pools, key: str, events: Iterable[Event], offset: int
) -> Iterator[Assigned]:
    """Records that a decision leads to. pools: state after it; key: its pool."""
    for event in events:
        match event:
            case NodeRegistered():
                yield _node(pools, key, event.node.node_id, offset)
            case NodeForgotten() | NodeLeaving() | MemberFreed():
                yield _node(pools, key, event.node_id, offset)
            case NodeKeysWithdrawn():
                for pool in sorted(pools):
                    yield _node(pools, pool, event.node_id, offset)
            case Rejected() if event.reason.code == "sender_withdrawn":
                sender = str(event.reason.params["sender"])
                yield _node(pools, key, node_of(sender) or sender, offset)
            case LeaseGranted():
                yield from _members(pools, key, event.lease.token.lease, offset, "order")
            case RendezvousOpened():
                yield from _members(pools, key, event.lease.token.lease, offset, "rendezvous")
            case LeaseDraining() | LeaseKilled():
                yield from _members(pools, key, event.lease.token.lease, offset)
            case LeaseKeysSealed():
                for record in _members(pools, key, event.holder.lease, offset, "sealed_keys"):
                    if record.incarnation == event.holder.incarnation:
                        yield record
            case PlacementClosed():
                for number in _closed_leases(pools, key, event):
                    yield from _members(pools, key, number, offset)
            case _:
                pass


def assigned_in(pools: Pools, offset: int) -> Iterator[Assigned]:
    """Records of all that nodes should know, in an order that no hash decides. What is over has
    none.
    """
    for key, pool in sorted(pools.items()):
        if key == GLOBAL:
            continue
        for _, lease in sorted(pool.leases.items()):
            for member in held_members(lease):
                said = ("order", "sealed_keys", "rendezvous")
                yield _lease(key, lease, member, offset, *said)
        for node_id in sorted(pool.nodes):
            yield _node(pools, key, node_id, offset)
        yield AssignedAll(pool=key, offset=offset)


def _closed_leases(pools: Pools, key: str, event: PlacementClosed) -> set[int]:
    """Return the lease that ran for a closed placement and holds slots still, if there is one."""
    pool = pools.get(key) or Pool()
    return {
        lease.number
        for node_id in event.end.node_ids
        for lease in leases_on(pool, node_id)
        if (lease.ref.job_id, lease.ref.attempt) == (event.job_id, event.attempt)
    }


def _node(pools: Pools, key: str, node_id: str, offset: int) -> AssignedNode:
    pool = pools.get(key) or Pool()
    node = pool.nodes.get(node_id)
    return AssignedNode(
        pool=key,
        node_id=node_id,
        offset=offset,
        incarnation="" if node is None else node.description.incarnation,
        former=() if node is None else node.former,
        leaving=node is not None and node.leaving,
        withdrawn=withdrawn_keys(pools).get(agent_of(node_id), 0),
        leases=tuple(lease.number for lease in leases_on(pool, node_id)),
    )


def _members(
    pools: Pools, key: str, number: int, offset: int, *said: str
) -> Iterator[AssignedLease]:
    """A record for each member that still holds its slots. said: fields to fill in."""
    lease = (pools.get(key) or Pool()).leases.get(lease_key(number))
    if lease is not None:
        for member in held_members(lease):
            yield _lease(key, lease, member, offset, *said)


def _lease(key: str, lease: Lease, member: LeaseMember, offset: int, *said: str) -> AssignedLease:
    handover, fields = lease.handover, dict[str, Any]()
    if handover is not None:
        fields = {
            "order": LeaseOrder(
                lease=lease.ref,
                members=lease.members,
                placement=handover.placement,
                work=handover.work,
            ),
            "sealed_keys": handover.sealed_keys.get(member.incarnation, ""),
            "rendezvous": handover.rendezvous,
        }
    is_over = lease.closed or lease.killed_at is not None
    return AssignedLease(
        pool=key,
        node_id=member.node_id,
        offset=offset,
        incarnation=member.incarnation,
        lease=lease.number,
        target="kill" if is_over else "run" if lease.ending is None else "drain",
        **{name: fields[name] for name in said if name in fields},
    )
