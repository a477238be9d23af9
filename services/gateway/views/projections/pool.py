"""`pool` → nodes, what waits and runs on them, and the usage of each job, slice by slice."""

from typing import assert_never

from schemas.enrolment import InvitationRevoked, NodeEnrolled, NodeInvited, NodeKeysSealed
from schemas.envelope import Header, Rejected, Repeated
from schemas.lease_keys import LeaseKeysRequested, LeaseKeysSealed
from schemas.node import (
    DeviceFaultsChanged,
    NodeCordoned,
    NodeForgotten,
    NodeJoined,
    NodeKeysWithdrawn,
    NodeLeaving,
    NodeNoticed,
    NodeResized,
    NodeUncordoned,
    NodeWarned,
    ObservationsDeferred,
    PlanningDeferred,
)
from schemas.pool import (
    Event,
    NodeLost,
    NodeRegistered,
    NodeRetired,
    NodesObserved,
    RendezvousOpened,
    UsageCredited,
    UsageSliced,
    WaitExplained,
)
from schemas.streams import GLOBAL
from schemas.training import LeaseHardware
from schemas.works import WorkKept
from services.gateway.views.event_ids import usage_id
from services.gateway.views.projections.placements import project_placement
from services.gateway.views.tables.jobs import INVITATIONS, NODES, USAGE, UsageRow
from tunery.plan.price import billed_lease
from tunery.runtime.verbs import Change


def project_pool(header: Header, event: Event) -> tuple[Change, ...]:
    """Rows of nodes, of the queue and of use that follow from one event of `pool`."""
    match event:
        case UsageSliced() | UsageCredited():
            return (_line(header, event),)
        case Rejected() | Repeated() | WorkKept() | WaitExplained() | RendezvousOpened():
            return ()
        case ObservationsDeferred() | PlanningDeferred():
            return ()
        case LeaseKeysRequested() | LeaseKeysSealed():
            return ()
        case NodeRegistered():
            return (_node(header, event),)
        case NodeJoined():
            return (NODES.update({"id": event.node_id}, joining=False),)
        case NodeLeaving():
            return (NODES.update({"id": event.node_id}, leaving=True),)
        case NodeNoticed():
            at = header.at
            return (NODES.update({"id": event.node_id}, ends_at=event.ends_at, interrupted_at=at),)
        case NodeWarned():
            return (NODES.update({"id": event.node_id}, warned=True),)
        case DeviceFaultsChanged():
            return (NODES.update({"id": event.node_id}, faults=event.faults),)
        case NodeResized():
            return (NODES.update({"id": event.node_id}, slots=event.slots),)
        case NodeCordoned():
            return (NODES.update({"id": event.node_id}, cordon=event.reason),)
        case NodeUncordoned():
            return (NODES.update({"id": event.node_id}, cordon=None),)
        case NodeKeysWithdrawn() if header.key == GLOBAL:
            return ()  # the pool of the node has said it
        case NodeKeysWithdrawn():
            tables = (NODES, INVITATIONS)
            key, number = {"id": event.node_id}, event.number
            return tuple(table.update(key, keys_withdrawn=number) for table in tables)
        case InvitationRevoked():
            return (INVITATIONS.update({"id": event.node_id}, expires_at=header.at),)
        case NodeInvited() | NodeEnrolled() | NodeKeysSealed():
            return (_invitation(header, event),)
        case NodeForgotten():
            return (NODES.delete({"id": event.node_id}),)
        case NodeRetired():
            return (NODES.update({"id": event.node_id}, state="retired"),)
        case NodeLost():
            return (NODES.update({"id": event.node_id}, state="lost", interrupted_at=header.at),)
        case NodesObserved():
            # a lost node that reports again is alive; silence is projected from NodeLost
            alive = (node for node in event.seen if not node.silent)
            return tuple(
                NODES.update({"id": node.node_id}, state="alive", seen_at=node.last_seen)
                for node in alive
            )
        case _:
            return project_placement(header, event)


def _node(header: Header, event: NodeRegistered) -> Change:
    """Row of a node without its cordon, which a following event sets."""
    return NODES.update(
        {"id": event.node.node_id},
        **NODES.shared(event.node),
        pool=header.key,
        faults=(),
        state="alive",
        joining=event.joining,
        leaving=False,
        ends_at=None,
        warned=False,
        registered_at=header.at,
        seen_at=header.at,
    )


def _invitation(header: Header, event: NodeInvited | NodeEnrolled | NodeKeysSealed) -> Change:
    """A new invitation leaves nothing of the one before."""
    key = {"id": event.node_id}
    match event:
        case NodeInvited():
            return INVITATIONS.update(
                key,
                pool=header.key,
                token_sha256=event.token_sha256,
                expires_at=event.expires_at,
                invited_at=header.at,
                invited_by=header.actor,
                public_key=None,
                key_number=None,
                enrolled_at=None,
                sealed_keys=None,
                sealed_settings=event.sealed_settings,
                uses=event.nodes_max,
                invitation=event.invitation,
            )
        case NodeEnrolled():
            return INVITATIONS.update(
                key,
                public_key=event.public_key,
                key_number=event.key_number,
                enrolled_at=header.at,
            )
        case NodeKeysSealed():
            return INVITATIONS.update(key, sealed_keys=event.sealed_keys)
        case _:
            assert_never(event)


def _line(header: Header, event: UsageSliced | UsageCredited) -> Change:
    """One line of a job's cost. Its id begins with where its event is, so lines sort by that."""
    lease = billed_lease(event)
    hardware = lease.hardware or LeaseHardware()
    credit = event if isinstance(event, UsageCredited) else None
    kind = "usage" if credit is None else f"credit/{credit.cause}"
    return USAGE.insert(
        UsageRow.of(
            lease,
            hardware,
            header,
            id=usage_id(header, f"{lease.token.lease:012d}/{event.hour_utc}/{kind}"),
            at=header.at,
            hour_utc=event.hour_utc,
            kind="usage" if credit is None else "credit",
            used_gpu_ms=event.used_gpu_ms if isinstance(event, UsageSliced) else 0,
            billable_gpu_ms=(
                event.billable_gpu_ms if isinstance(event, UsageSliced) else -event.lost_gpu_ms
            ),
            cause=None if credit is None else credit.cause,
            journal_partition=header.partition,
            journal_offset=header.offset,
            tokens=event.tokens if isinstance(event, UsageSliced) else -event.lost_tokens,
        )
    )
