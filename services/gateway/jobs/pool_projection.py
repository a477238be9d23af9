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
from services.gateway.views.rows import put
from services.gateway.views.tables import NODES, USAGE
from tunery.runtime.verbs import Change


def project_pool(header: Header, event: Event) -> tuple[Change, ...]:
    match event:
        case NodeRegistered():
            values = {
                "pool": header.key,
                "device": event.device,
                "slots": event.slots,
                "memory_bytes": event.memory_bytes,
                "state": "alive",
            }
            return (put(NODES, {"id": event.node_id}, **values),)
        case NodeRetired():
            return (put(NODES, {"id": event.node_id}, state="retired"),)
        case NodeLost():
            return (put(NODES, {"id": event.node_id}, state="lost"),)
        case NodesObserved():
            # a node that was lost and is heard again; those that are silent are told by NodeLost
            heard = (seen for seen in event.seen if not seen.silent)
            return tuple(put(NODES, {"id": seen.node_id}, state="alive") for seen in heard)
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


def _line(header: Header, event: UsageSliced | UsageCredited) -> Change:
    """One line of a job's cost; its key says which, so that lines can be summed."""
    credit = isinstance(event, UsageCredited)
    kind = f"credit/{event.cause}" if isinstance(event, UsageCredited) else "usage"
    return put(
        USAGE,
        {
            "tenant": event.tenant,
            "job_id": event.job_id,
            "id": f"{event.token.pool}/{event.token.lease:012d}/{event.hour}/{kind}",
        },
        at=header.at,
        attempt=event.attempt,
        role=event.role,
        lane=event.lane,
        price_version=event.price_version,
        hour=event.hour,
        kind="credit" if credit else "usage",
        used_gpu_ms=event.used_gpu_ms if isinstance(event, UsageSliced) else 0,
        billable_gpu_ms=(
            event.billable_gpu_ms if isinstance(event, UsageSliced) else -event.lost_gpu_ms
        ),
        cause=event.cause if isinstance(event, UsageCredited) else None,
    )
