"""`pool` → nodes, and what each job has used, slice by slice."""

from typing import assert_never

from schemas.envelope import Header, Rejected, Repeated
from schemas.pool import (
    CheckpointAccepted,
    Event,
    LeaseDraining,
    LeaseGranted,
    LeaseKilled,
    LeaseStarted,
    NodeLost,
    NodeRegistered,
    NodeRetired,
    NodesObserved,
    PlacementClosed,
    PlacementQueued,
    SlotsFreed,
    UsageCredited,
    UsageSliced,
    WaitExplained,
)
from services.gateway.jobs.tables import NODES, USAGE, NodeRow, UsageRow
from tunery.runtime.verbs import Change


def project_pool(header: Header, event: Event) -> tuple[Change, ...]:
    """Rows of nodes and of use that follow from one event of `pool`."""
    match event:
        case NodeRegistered():
            return (_node(header, event),)
        case NodeRetired():
            return (NODES.update({"id": event.node_id}, state="retired"),)
        case NodeLost():
            return (NODES.update({"id": event.node_id}, state="lost"),)
        case NodesObserved():
            # a node that was lost and is back; NodeLost says which ones are silent
            alive = (node for node in event.seen if not node.silent)
            return tuple(NODES.update({"id": node.node_id}, state="alive") for node in alive)
        case UsageSliced() | UsageCredited():
            return (_line(header, event),)
        case (
            PlacementQueued()
            | WaitExplained()
            | LeaseGranted()
            | LeaseStarted()
            | CheckpointAccepted()
            | LeaseDraining()
            | LeaseKilled()
            | PlacementClosed()
            | SlotsFreed()
            | Rejected()
            | Repeated()
        ):
            return ()
        case _:
            assert_never(event)


def _node(header: Header, event: NodeRegistered) -> Change:
    return NODES.insert(
        NodeRow(
            id=event.node_id,
            pool=header.key,
            device=event.device,
            slots=event.slots,
            memory_bytes=event.memory_bytes,
            state="alive",
        )
    )


def _line(header: Header, event: UsageSliced | UsageCredited) -> Change:
    """One line of a job's cost; its id says which, so that lines can be summed."""
    credit = event if isinstance(event, UsageCredited) else None
    kind = "usage" if credit is None else f"credit/{credit.cause}"
    return USAGE.insert(
        UsageRow(
            tenant=event.tenant,
            job_id=event.job_id,
            id=f"{event.token.pool}/{event.token.lease:012d}/{event.hour}/{kind}",
            at=header.at,
            attempt=event.attempt,
            role=event.role,
            lane=event.lane,
            price_version=event.price_version,
            hour=event.hour,
            kind="usage" if credit is None else "credit",
            used_gpu_ms=event.used_gpu_ms if isinstance(event, UsageSliced) else 0,
            billable_gpu_ms=(
                event.billable_gpu_ms if isinstance(event, UsageSliced) else -event.lost_gpu_ms
            ),
            cause=None if credit is None else credit.cause,
        )
    )
