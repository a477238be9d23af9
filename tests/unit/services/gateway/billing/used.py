"""Use of a tenant's job, written into the journal's read model as the pool would."""

from schemas.envelope import Header
from schemas.pool import LeaseRef, Token, UsageCredited, UsageSliced
from schemas.streams import PARTITIONS
from schemas.topics import POOL
from schemas.units import HOUR_MS
from services.gateway.views.host import VIEWS_PROJECTION
from services.gateway.views.projections.pool import project_pool
from tests.unit.services.gateway.control_plane import ControlPlane
from tunery.runtime.store.abstract import RowBatch

PARTITION = PARTITIONS - 1  # nothing is written to this partition of the log in these tests


def lease(tenant: str, job_id: str, number: int = 1, **values: str) -> LeaseRef:
    """A lease of a job's training in lane standard, at our price book."""
    return LeaseRef(
        token=Token(pool="default", lease=number),
        tenant=tenant,
        job_id=job_id,
        attempt=1,
        role="train",
        lane="standard",
        price_version="2026-11",
    )


def sliced(ref: LeaseRef, hour: int, gpu_ms: int = HOUR_MS) -> UsageSliced:
    return UsageSliced(lease=ref, hour_utc=hour, used_gpu_ms=gpu_ms, billable_gpu_ms=gpu_ms)


def credited(ref: LeaseRef, hour: int, gpu_ms: int) -> UsageCredited:
    return UsageCredited(lease=ref, hour_utc=hour, lost_gpu_ms=gpu_ms, cause="lost")


async def use(api: ControlPlane, *events: UsageSliced | UsageCredited) -> int:
    """Project the events, one record each; returns the offset of the first."""
    name, partition = VIEWS_PROJECTION.name, (POOL.name, PARTITION)
    position = (await api.runtime.store.positions(name))[partition].position
    changes = [
        change
        for offset, event in enumerate(events, position.offset)
        for change in project_pool(
            Header(
                stream=POOL.name,
                partition=PARTITION,
                offset=offset,
                at=event.hour_utc * HOUR_MS,
                key="default",
                tenant="",
                seq=offset,
                command_id=f"c{offset}",
                incarnation=0,
            ),
            event,
        )
    ]
    await api.runtime.store.commit(
        RowBatch(name, VIEWS_PROJECTION.version, partition, position.offset, position, changes)
    )
    return position.offset
