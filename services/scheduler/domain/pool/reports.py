"""Reports of agents about their leases. A report with the token of an earlier lease is refused."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from msgspec.structs import replace

from schemas import errors
from schemas.envelope import Context, Rejected
from schemas.ids import SESSION as SESSION_PREFIX
from schemas.pool import (
    CheckpointAccepted,
    ConfirmFreed,
    Event,
    LeaseStarted,
    MemberFreed,
    RendezvousOpened,
    ReportCheckpoint,
    ReportExit,
    ReportRendezvous,
    ReportStarted,
    ReportWait,
)
from schemas.reasons import refusing
from schemas.training import BlobFile, files_of
from services.scheduler.domain.pool import closing
from services.scheduler.domain.pool.state import Lease, Pool, held_members, is_run_by, lease_key
from services.scheduler.domain.pool.usage import cap_ms, clamp, skipped_gpu_ms, skipped_tokens

R = TypeVar("R", ReportRendezvous, ReportWait, ReportStarted, ReportCheckpoint, ReportExit)


def decide_report(
    pool: Pool,
    command: R,
    ctx: Context,
    decide: Callable[[Lease, R, Context], tuple[Event, ...]],
) -> tuple[Event, ...]:
    """Refuse a report with another token or after the lease's end; decide any other."""
    lease = pool.leases.get(lease_key(command.token.lease))
    if (
        lease is None
        or lease.closed
        or command.token.pool != ctx.key
        or not is_run_by(lease, command.incarnation)
    ):
        stale = refusing("lease_not_open", lease=command.token.lease)
        return (Rejected(code=errors.STALE_TOKEN, reason=stale),)
    return decide(lease, command, ctx)


def decide_rendezvous(lease: Lease, command: ReportRendezvous, ctx: Context) -> tuple[Event, ...]:
    """The first member of a lease reports the address at which the others reach it."""
    if command.incarnation != lease.members[0].incarnation or lease.started_at is not None:
        other = refusing("lease_not_open", lease=lease.number)
        return (Rejected(code=errors.STALE_TOKEN, reason=other),)
    return (RendezvousOpened(lease=lease.ref, rendezvous=command.rendezvous),)


def decide_started(lease: Lease, command: ReportStarted, ctx: Context) -> tuple[Event, ...]:
    """The lease starts. Work that was paid for and cannot be used again is credited."""
    if lease.started_at is not None:
        return ()
    started = LeaseStarted(lease=lease.ref, start=command.start)
    if not command.start.skipped:
        return (started,)
    lost = skipped_gpu_ms(lease.named, command.start.loaded, lease.slots)
    tokens = skipped_tokens(lease.named, command.start.loaded)
    given_back = closing.credit(lease.ref, lease.charged, lost, "skipped_checkpoint", tokens)
    return (started, *given_back)


def decide_checkpoint(lease: Lease, command: ReportCheckpoint, ctx: Context) -> tuple[Event, ...]:
    """A checkpoint of the running training exists from here on; a repeat changes nothing.

    That of a session says that it has done nothing since: its work is saved until then.
    """
    checkpoint, ref = command.checkpoint, lease.ref
    if lease.started_at is None or ref.role != "train" or checkpoint.attempt != ref.attempt:
        other = refusing("lease_not_training", lease=lease.number, attempt=checkpoint.attempt)
        return (Rejected(code=errors.ILLEGAL_STATE, reason=other),)
    is_repeat = checkpoint.manifest_sha256 == lease.last_manifest
    if is_repeat and not ref.job_id.startswith(SESSION_PREFIX):
        return ()
    if (foreign := _refuse_files_of_others(lease, checkpoint.files)) is not None:
        return (foreign,)
    # What ran above the cap was never billed, so no later credit may count it either.
    latest_ms = min(ctx.at - lease.started_at, cap_ms(lease.max_gpu_ms, lease.slots))
    captured_ms = clamp(checkpoint.captured_ms, lease.captured_ms, latest_ms)
    if is_repeat and captured_ms == lease.captured_ms:
        return ()
    accepted = replace(checkpoint, captured_ms=captured_ms)
    return (CheckpointAccepted(lease=ref, checkpoint=accepted),)


def decide_exit(lease: Lease, command: ReportExit, ctx: Context) -> tuple[Event, ...]:
    """End the lease: nothing more is billed. Its slots become free later, node by node."""
    left = () if command.result is None else files_of(command.result)
    if (foreign := _refuse_files_of_others(lease, left)) is not None:
        return (foreign,)
    return closing.close(lease, closing.end_of_report(lease, command, ctx.at))


def decide_freed(pool: Pool, command: ConfirmFreed, ctx: Context) -> tuple[Event, ...]:
    """A member is free. A lease without a reported exit ends with its last one, by the platform.

    The first member reports the exit of all; others may be free before that.
    """
    lease = pool.leases.get(lease_key(command.token.lease))
    if lease is None or command.token.pool != ctx.key:
        return ()
    member = next((m for m in lease.members if m.node_id == command.node_id), None)
    if member is None or member.incarnation != command.incarnation:
        unknown = refusing("member_unknown", lease=lease.number, node_id=command.node_id)
        return (Rejected(code=errors.STALE_TOKEN, reason=unknown),)
    if command.node_id in lease.freed:
        return ()
    freed = MemberFreed(lease=lease.ref, node_id=command.node_id)
    if lease.closed or len(held_members(lease)) > 1:
        return (freed,)
    return (*closing.close(lease, closing.end_of_unreported(lease, ctx.at)), freed)


def _refuse_files_of_others(lease: Lease, files: Iterable[BlobFile]) -> Rejected | None:
    """The refusal when a file is not the tenant's whose lease this is; None when all of them are.

    Who fetches a checkpoint or a model is given what its record names. An agent that named files
    of another tenant in it would hand them over.
    """
    prefix = f"t/{lease.ref.tenant}/"
    for file in files:
        if not file.blob.startswith(prefix):
            other = refusing("lease_of_other_files", lease=lease.number, blob=file.blob)
            return Rejected(code=errors.FORBIDDEN, reason=other)
    return None
