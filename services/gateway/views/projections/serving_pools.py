"""`job` and `pool` → serving pools and their replicas.

`job` says which terms a replica has, `pool` where they run. Both end a term's row, so it is gone
whichever journal is read first.
"""

from typing import Any

from schemas.envelope import Header
from schemas.pool import LeaseDraining, LeaseGranted, LeaseKilled, LeaseStarted, PlacementClosed
from schemas.serving import (
    ServingPoolRemoved,
    ServingPoolSet,
    ServingPoolStalled,
    ServingTermBegun,
    ServingTermDraining,
    ServingTermEnded,
    ServingTermUnwanted,
)
from services.gateway.views.tables.serving_pools import (
    REPLICAS,
    SERVING_POOLS,
    ReplicaRow,
    ServingPoolRow,
)
from tunery.runtime.verbs import Change


def project_serving(header: Header, event: Any) -> tuple[Change, ...]:
    """Rows of serving pools and replicas that follow from one event of `job`."""
    match event:
        case ServingPoolSet():
            row = ServingPoolRow(
                tenant=header.key,
                id=event.terms.serving_pool_id,
                set_at=header.at,
                terms=event.terms,
                lane=event.lane,
            )
            cleared = _pool(header, row.id, stalled_code=None, stalled_reason=None)
            return (SERVING_POOLS.insert(row), cleared)
        case ServingPoolRemoved():
            key = {"tenant": header.key, "id": event.serving_pool_id}
            return (SERVING_POOLS.delete(key),)
        case ServingPoolStalled(code=code, reason=reason):
            stalled = {"stalled_code": code, "stalled_reason": reason}
            return (_pool(header, event.serving_pool_id, **stalled),)
        case ServingTermBegun(serving_pool_id=name):
            begun = ReplicaRow(
                tenant=header.key,
                id=event.placement.job_id,
                serving_pool_id=name,
                begun_at=header.at,
            )
            return (
                REPLICAS.insert(begun),
                _pool(
                    header,
                    name,
                    lane=event.placement.lane,
                    stalled_code=None,
                    stalled_reason=None,
                ),
            )
        case ServingTermDraining() | ServingTermUnwanted():
            return (_replica(header.key, event.term_id, draining=True),)
        case ServingTermEnded():
            return (REPLICAS.delete({"tenant": header.key, "id": event.term_id}),)
        case _:
            return ()


def project_replica(header: Header, event: Any) -> tuple[Change, ...]:
    """Rows of replicas that follow from one event of `pool`."""
    match event:
        case LeaseGranted(lease=lease) if lease.role == "serve":
            node_id = event.members[0].node_id
            granted = {"granted_at": header.at, "node_id": node_id}
            return (_replica(lease.tenant, lease.job_id, **granted),)
        case LeaseStarted(lease=lease) if lease.role == "serve":
            started = {"started_at": header.at, "endpoint": event.start.endpoint}
            return (_replica(lease.tenant, lease.job_id, **started),)
        case LeaseDraining(lease=lease) | LeaseKilled(lease=lease) if lease.role == "serve":
            return (_replica(lease.tenant, lease.job_id, draining=True),)
        case PlacementClosed(role="serve"):
            return (REPLICAS.delete({"tenant": event.tenant, "id": event.job_id}),)
        case _:
            return ()


def _pool(header: Header, name: str, **values: object) -> Change:
    return SERVING_POOLS.update({"tenant": header.key, "id": name}, **values)


def _replica(tenant: str, term_id: str, **values: object) -> Change:
    return REPLICAS.update({"tenant": tenant, "id": term_id}, **values)
