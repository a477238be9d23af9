"""Erasure of a tenant: which of its parts go next, and the record at the end."""

import hashlib

import msgspec
from immutables import Map
from msgspec.structs import replace

from schemas import errors
from schemas.account import (
    ADMIN_SCOPE,
    ChangeEndpoint,
    Command,
    CreateEndpoint,
    CreateKey,
    Deliver,
    EndpointDeleted,
    Event,
    KeyRevoked,
    ResumeTenant,
    RotateEndpoint,
    RotateKey,
    SetPlan,
    SuspendTenant,
)
from schemas.batch import CreateBatch
from schemas.envelope import Context, Rejected
from schemas.erasure import (
    ERASURE_PARTS,
    ErasedPart,
    EraseTenant,
    ErasureEvent,
    ErasurePart,
    ErasurePartDone,
    ErasureRecord,
    RecordErasedPart,
    TenantErased,
    TenantErasureBegun,
)
from schemas.imports import ImportEnded, ImportResult, StartImport
from schemas.integrations import SetTrackingServer
from schemas.reasons import refusing
from services.billing.domain.state import AccountState, Erasure

# Commands that are refused for an erased tenant. Its usage is still billed.
REFUSED = (
    *(SetPlan, SuspendTenant, ResumeTenant, CreateKey, RotateKey),
    *(CreateEndpoint, ChangeEndpoint, RotateEndpoint, Deliver, SetTrackingServer),
    *(CreateBatch, StartImport),
)


def refuse_erased(tenant: AccountState, command: Command, ctx: Context) -> tuple[Rejected, ...]:
    """The rejection of what cannot be done to a tenant that is erased; empty: it can be done."""
    if tenant.erasure is None or not isinstance(command, REFUSED):
        return ()
    return (Rejected(code=errors.ILLEGAL_STATE, reason=refusing("tenant_erased", tenant=ctx.key)),)


def decide_erasure(
    tenant: AccountState, command: EraseTenant | RecordErasedPart, ctx: Context
) -> tuple[Event, ...]:
    """The begin of an erasure, and its progress. Repeated commands and reports give no events."""
    if isinstance(command, RecordErasedPart):
        return _part_done(tenant, command.part, ctx)
    if tenant.erasure is not None:
        return ()
    keys = sorted(tenant.keys.items())
    if any(ADMIN_SCOPE in key.scopes and key.works_at(ctx.at) for _, key in keys):
        operators = refusing("tenant_of_operators", tenant=ctx.key)
        return (Rejected(code=errors.ILLEGAL_STATE, reason=operators),)
    return (
        *(KeyRevoked(key_id=name, sha256=key.sha256) for name, key in keys if not key.revoked),
        *(EndpointDeleted(endpoint_id=name) for name in sorted(tenant.endpoints)),
        *(
            ImportEnded(result=ImportResult(import_id=name, outcome="cancelled"))
            for name in tenant.imports
        ),
        TenantErasureBegun(begins=ERASURE_PARTS[0]),
    )


def _part_done(tenant: AccountState, part: ErasurePart, ctx: Context) -> tuple[Event, ...]:
    erasure = tenant.erasure
    if erasure is None or part in erasure.names:
        return ()
    gone = {*erasure.names, part}
    done = ErasurePartDone(part=part, begins=_following(gone, part))
    if not gone.issuperset(name for step in ERASURE_PARTS for name in step):
        return (done,)
    record = ErasureRecord(
        tenant=ctx.key,
        begun_at=erasure.begun_at,
        parts=(*erasure.parts, ErasedPart(part=part, at=ctx.at)),
    )
    digest = hashlib.sha256(msgspec.json.encode(record)).hexdigest()
    return (done, TenantErased(record=record, sha256=digest))


def _following(names: set[ErasurePart], part: ErasurePart) -> tuple[ErasurePart, ...]:
    """The parts of the next step, once all of this part's step are gone."""
    at = next(at for at, step in enumerate(ERASURE_PARTS) if part in step)
    if names.issuperset(ERASURE_PARTS[at]) and at + 1 < len(ERASURE_PARTS):
        return ERASURE_PARTS[at + 1]
    return ()


def evolve_erasure(tenant: AccountState, event: ErasureEvent, ctx: Context) -> AccountState:
    """The tenant after an event of its erasure."""
    if isinstance(event, TenantErasureBegun):
        return replace(tenant, erasure=Erasure(begun_at=ctx.at), batches=Map())
    if isinstance(event, TenantErased) or tenant.erasure is None:
        return tenant
    parts = (*tenant.erasure.parts, ErasedPart(part=event.part, at=ctx.at))
    return replace(tenant, erasure=replace(tenant.erasure, parts=parts))
