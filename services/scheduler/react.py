"""What follows elsewhere from the `job` and `pool` journals. Only reactions cross streams."""

from typing import assert_never

from schemas.account import Announce
from schemas.dataset import PinDataset, UnpinDataset
from schemas.envelope import Header, Message
from schemas.ids import EVENT, derived_id
from schemas.job import (
    AttemptStarted,
    JobEnded,
    PinsWanted,
    PlacementUnwanted,
    PlacementWanted,
    RecordCheckpoint,
    RecordClosed,
    RecordDraining,
    RecordGranted,
    RecordStarted,
    RecordUsage,
    RecordWait,
    RegistrationWanted,
    VerdictRecorded,
    WantedSet,
)
from schemas.job import Event as JobEvent
from schemas.model import PinBase, RegisterVersion
from schemas.pool import (
    CheckpointAccepted,
    ClosePlacement,
    LeaseDraining,
    LeaseGranted,
    LeaseStarted,
    PlacementClosed,
    RequestPlacement,
    UsageCredited,
    UsageSliced,
    WaitExplained,
)
from schemas.pool import Event as PoolEvent
from tunery.runtime.verbs import Send


def react_job(header: Header, event: JobEvent) -> tuple[Send, ...]:
    match event:
        case PinsWanted():
            return _pins(header, event)
        case PlacementWanted():
            return (_to_pool(event.pool, header.tenant, _request(header.tenant, event)),)
        case PlacementUnwanted():
            close = ClosePlacement(job_id=event.job_id, attempt=event.attempt, mode=event.mode)
            return (_to_pool(event.pool, header.tenant, close),)
        case RegistrationWanted():
            register = RegisterVersion(
                model_id=event.model_id,
                line=event.line,
                lineage=event.lineage,
                adapter=event.adapter,
            )
            return (Send("model", header.key, header.tenant, register),)
        case AttemptStarted(role="train"):
            return (_announce(header, event.job_id, "running", f"started/{event.attempt}"),)
        case WantedSet(wanted="paused"):
            return (_announce(header, event.job_id, "paused", f"paused/{header.seq}"),)
        case VerdictRecorded():
            return (_announce(header, event.job_id, "gated", "gated"),)
        case JobEnded():
            return _ended(header, event)
        case _:
            return ()


def react_pool(_: Header, event: PoolEvent) -> tuple[Send, ...]:
    match event:
        case (
            WaitExplained()
            | LeaseGranted()
            | LeaseStarted()
            | CheckpointAccepted()
            | LeaseDraining()
            | UsageSliced()
            | UsageCredited()
            | PlacementClosed()
        ):
            return (Send("job", event.tenant, event.tenant, _told(event)),)
        case _:
            return ()


def _told(
    event: WaitExplained
    | LeaseGranted
    | LeaseStarted
    | CheckpointAccepted
    | LeaseDraining
    | UsageSliced
    | UsageCredited
    | PlacementClosed,
) -> Message:
    job_id = event.job_id
    match event:
        case WaitExplained():
            return RecordWait(
                job_id=job_id,
                attempt=event.attempt,
                reason=event.reason,
                position=event.position,
            )
        case LeaseGranted():
            return RecordGranted(job_id=job_id, attempt=event.attempt, node_id=event.node_id)
        case LeaseStarted():
            return RecordStarted(
                job_id=job_id,
                attempt=event.attempt,
                loaded_step=event.loaded_step,
                skipped=event.skipped,
                total_steps=event.total_steps,
            )
        case CheckpointAccepted():
            return RecordCheckpoint(job_id=job_id, checkpoint=event.checkpoint)
        case LeaseDraining():
            return RecordDraining(job_id=job_id, attempt=event.attempt)
        case UsageSliced():
            return RecordUsage(
                job_id=job_id,
                attempt=event.attempt,
                hour=event.hour,
                gpu_ms=event.billable_gpu_ms,
            )
        case UsageCredited():
            return RecordUsage(
                job_id=job_id, attempt=event.attempt, hour=event.hour, gpu_ms=-event.lost_gpu_ms
            )
        case PlacementClosed():
            return _closed(event)
        case _:
            assert_never(event)


def _closed(event: PlacementClosed) -> RecordClosed:
    return RecordClosed(
        job_id=event.job_id,
        attempt=event.attempt,
        role=event.role,
        outcome=event.outcome,
        cause=event.cause,
        message=event.message,
        result=event.result,
        node_id=event.node_id,
        used_gpu_ms=event.used_gpu_ms,
        billable_gpu_ms=event.billable_gpu_ms,
        lost_gpu_ms=event.lost_gpu_ms,
    )


def _pins(header: Header, event: PinsWanted) -> tuple[Send, ...]:
    dataset = PinDataset(
        job_id=event.job_id,
        training_file=event.training_file,
        validation_file=event.validation_file,
        spec=event.prepare,
    )
    base = PinBase(job_id=event.job_id, base_id=event.base_id, base_sha256=event.base_sha256)
    return (
        Send("dataset", header.key, header.tenant, dataset),
        Send("model", header.key, header.tenant, base),
    )


def _request(tenant: str, event: PlacementWanted) -> RequestPlacement:
    return RequestPlacement(
        tenant=tenant,
        job_id=event.job_id,
        attempt=event.attempt,
        role=event.role,
        lane=event.lane,
        slots=event.slots,
        max_gpu_ms=event.max_gpu_ms,
        price_version=event.price_version,
        work=event.work,
        checkpoints=event.checkpoints,
        exclude_nodes=event.exclude_nodes,
    )


def _ended(header: Header, event: JobEnded) -> tuple[Send, ...]:
    """Endpoints hear of it, and the data set may go."""
    return (
        _announce(header, event.job_id, event.outcome, "ended"),
        Send("dataset", header.key, header.tenant, UnpinDataset(job_id=event.job_id)),
    )


def _announce(header: Header, job_id: str, what: str, fact: str) -> Send:
    """For endpoints that subscribe to it. The event's id follows from the job's and the fact."""
    announce = Announce(
        event_id=EVENT + derived_id(header.tenant, job_id, fact),
        event_type=f"fine_tuning.job.{what}",
        object_id=job_id,
        created_at=header.at,
    )
    return Send("account", header.key, header.tenant, announce)


def _to_pool(pool: str, tenant: str, body: Message) -> Send:
    return Send("pool", pool, tenant, body)
