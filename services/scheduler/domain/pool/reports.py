"""What agents say about their leases. A token counts only while it is the lease's own."""

from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from schemas import errors
from schemas.envelope import Context, Rejected
from schemas.pool import (
    CheckpointAccepted,
    ConfirmFreed,
    Event,
    LeaseStarted,
    ReportCheckpoint,
    ReportExit,
    ReportStarted,
    SlotsFreed,
)
from schemas.units import hour_of
from services.scheduler.domain.pool import closing
from services.scheduler.domain.pool.state import Lease, Pool, lease_key
from services.scheduler.domain.pool.usage import cap_ms, clamp, skipped_gpu_ms

R = TypeVar("R", ReportStarted, ReportCheckpoint, ReportExit)


def report(
    pool: Pool,
    command: R,
    ctx: Context,
    then: Callable[[Lease, R, Context], tuple[Event, ...]],
) -> tuple[Event, ...]:
    """First fact wins: whatever comes with another token, or after the end, is stale."""
    lease = pool.leases.get(lease_key(command.token.lease))
    if (
        lease is None
        or lease.closed
        or command.token.pool != ctx.key
        or command.incarnation != lease.incarnation
    ):
        text = f"lease {command.token.lease} is not open for this agent: stop it, free its slots"
        return (Rejected(code=errors.STALE_TOKEN, message=text),)
    return then(lease, command, ctx)


def started(lease: Lease, command: ReportStarted, ctx: Context) -> tuple[Event, ...]:
    if lease.started_at is not None:
        return ()
    begun = LeaseStarted(
        token=command.token,
        tenant=lease.tenant,
        job_id=lease.job_id,
        attempt=lease.attempt,
        role=lease.role,
        loaded=command.loaded,
        loaded_step=command.loaded_step,
        skipped=command.skipped,
        total_steps=command.total_steps,
    )
    if not command.skipped:
        return (begun,)
    # Work that was paid for and cannot be used again is the platform's loss.
    lost = skipped_gpu_ms(lease.named, command.loaded, lease.slots)
    if lost == 0:
        return (begun,)
    hour = hour_of(ctx.at)
    return (begun, closing.credited(ctx.key, lease, hour, lost, "skipped_checkpoint"))


def checkpointed(lease: Lease, command: ReportCheckpoint, ctx: Context) -> tuple[Event, ...]:
    found = command.checkpoint
    if lease.started_at is None or lease.role != "train" or found.attempt != lease.attempt:
        text = f"lease {lease.number} is not training attempt {found.attempt}"
        return (Rejected(code=errors.ILLEGAL_STATE, message=text),)
    if found.manifest_sha256 == lease.last_manifest:
        return ()
    # What ran above the cap was never billed, so no later credit may count it either.
    latest_ms = min(ctx.at - lease.started_at, cap_ms(lease.max_gpu_ms, lease.slots))
    captured_ms = clamp(found.captured_ms, lease.captured_ms, latest_ms)
    accepted = CheckpointAccepted(
        token=command.token,
        tenant=lease.tenant,
        job_id=lease.job_id,
        checkpoint=replace(found, captured_ms=captured_ms),
    )
    return (accepted,)


def exited(lease: Lease, command: ReportExit, ctx: Context) -> tuple[Event, ...]:
    return closing.close(ctx.key, lease, closing.exit_of(lease, command, ctx.at))


def freed(pool: Pool, command: ConfirmFreed, ctx: Context) -> tuple[Event, ...]:
    """Slots return. A lease that its agent forgot to end first ends here, as a platform error."""
    lease = pool.leases.get(lease_key(command.lease))
    if lease is None:
        return ()
    if (command.node_id, command.incarnation) != (lease.node_id, lease.incarnation):
        text = f"lease {command.lease} is not on node {command.node_id} in this incarnation"
        return (Rejected(code=errors.STALE_TOKEN, message=text),)
    back = SlotsFreed(token=closing.token(ctx.key, lease), node_id=lease.node_id)
    if lease.closed:
        return (back,)
    end = closing.forgotten(lease, ctx.at)
    return (*closing.close(ctx.key, lease, end), back)
