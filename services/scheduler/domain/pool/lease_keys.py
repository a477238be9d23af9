"""Keys that the agent of a lease may get: those that the work of the lease needs."""

import re
from collections.abc import Iterator
from typing import assert_never

from schemas import errors
from schemas.enrolment import PUBLIC_KEY
from schemas.envelope import Rejected, reject
from schemas.lease_keys import (
    FOLDER,
    LeaseHolder,
    LeaseKeysCommand,
    LeaseKeysRequested,
    LeaseKeysSealed,
    LeaseNeeds,
    NeededText,
    RecordLeaseKeys,
    RequestLeaseKeys,
)
from schemas.pool import Event, LeaseMember
from schemas.reasons import refusing
from schemas.records import build_from
from schemas.sealed import Sealed, SealedField
from schemas.session import SESSIONS
from schemas.training import BlobFile, EvalWork, ServeWork, TrainWork, Work
from services.scheduler.domain.pool.state import Lease, Pool, lease_key, work_of


def decide_lease_keys(pool: Pool, command: LeaseKeysCommand) -> tuple[Event, ...]:
    """Decide on an agent's request for keys, or on keys that are sealed to it.

    Both are refused where the lease has ended, or another agent has it: such keys are of no use.
    """
    lease = pool.leases.get(lease_key(command.lease))
    member = None if lease is None else member_of(lease, command.incarnation)
    if lease is None or member is None:
        stale = refusing("lease_not_open", lease=command.lease)
        return (Rejected(code=errors.STALE_TOKEN, reason=stale),)
    if re.fullmatch(PUBLIC_KEY, command.public_key) is None:
        return reject(errors.MALFORMED, refusing("public_key_malformed"), "public_key")
    match command:
        case RequestLeaseKeys():
            return _request(pool, lease, member, command)
        case RecordLeaseKeys():
            holder = _holder(lease, member)
            return (LeaseKeysSealed(holder=holder, sealed_keys=command.sealed_keys),)
        case _:
            assert_never(command)


def member_of(lease: Lease, incarnation: str) -> LeaseMember | None:
    """Return an agent's member of a lease; None: the lease has ended, or is not the agent's."""
    members = () if lease.closed else lease.members
    return next((member for member in members if member.incarnation == incarnation), None)


def _request(
    pool: Pool, lease: Lease, member: LeaseMember, command: RequestLeaseKeys
) -> tuple[Event, ...]:
    work = work_of(pool, lease.ref.job_id, lease.work_id)
    if work is None:
        unknown = refusing("lease_work_unknown", lease=lease.number)
        return (Rejected(code=errors.ILLEGAL_STATE, reason=unknown),)
    requested = LeaseKeysRequested(
        holder=_holder(lease, member),
        public_key=command.public_key,
        needs=needs_of(lease, work),
    )
    return (requested,)


def _holder(lease: Lease, member: LeaseMember) -> LeaseHolder:
    return build_from(LeaseHolder, lease.ref, member, lease=lease.number)


def needs_of(lease: Lease, work: Work) -> LeaseNeeds:
    """Return the blobs that a lease reads and writes. Files of others are not encrypted for its
    tenant.
    """
    root = f"t/{lease.ref.tenant}/"
    own = f"{lease.ref.job_id}/{lease.ref.attempt}{FOLDER}"
    match work:
        case TrainWork():
            start = () if work.start is None else work.start.files
            resumed = (file for named in lease.named for file in named.files)
            prepared = (work.prepared.train_blob, work.prepared.validation_blob)
            reads = (*prepared, *_blobs(*start, *resumed))
            kinds: tuple[str, ...] = ("checkpoints", "adapters")
            if work.takes_commands:  # commands, and weights that any session has saved
                reads, kinds = (*reads, f"{root}{SESSIONS}{FOLDER}"), (*kinds, SESSIONS)
            texts = (*_text("prompts", work.prompts), *_text("grader", work.grader))
            if work.chat is not None:
                texts += tuple(_text("chat_template", work.chat.template))
                texts += tuple(_text("eot_tokens", work.chat.eot_tokens))
        case EvalWork():
            scored = () if work.scored is None else (work.scored,)
            prepared = (work.prepared.validation_blob, work.prepared.prompts_blob)
            reads = (*prepared, *_blobs(*work.adapter, *scored))
            kinds = ("scores",)
            texts = (
                *_text("prompts", work.prompts),
                *_text("grader", work.grader),
                *_text("measures", work.measures),
            )
        case ServeWork():  # of all its models any may be asked for while it answers
            reads, kinds, texts = (f"{root}models{FOLDER}",), (), ()
        case _:
            assert_never(work)
    return LeaseNeeds(
        reads=tuple(sorted({key for key in reads if key.startswith(root)})),
        writes=tuple(f"{root}{kind}/{own}" for kind in kinds),
        texts=texts,
    )


def _blobs(*files: BlobFile) -> Iterator[str]:
    return (file.blob for file in files)


def _text(field: SealedField, sealed: Sealed | None) -> Iterator[NeededText]:
    if sealed is not None:
        yield NeededText(field=field, sealed=sealed)
