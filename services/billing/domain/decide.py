"""Decisions of `account`: tenants, keys, price books; other files have the rest."""

from typing import assert_never

from schemas import errors
from schemas.account import (
    ADMIN_SCOPE,
    KEYS_SCOPE,
    AdjustInvoice,
    Announce,
    ChangeEndpoint,
    CloseInvoice,
    Command,
    CreateEndpoint,
    CreateKey,
    CreateTenant,
    DeleteEndpoint,
    Deliver,
    EndDelivery,
    Event,
    ImportPrices,
    KeyCreated,
    KeyRevoked,
    KeyRotated,
    PricesImported,
    ResumeTenant,
    RevokeKey,
    RotateEndpoint,
    RotateKey,
    SetBillingTerms,
    SetPlan,
    SuspendTenant,
    TenantCreated,
)
from schemas.answers import CountAnswers
from schemas.batch import AnswerBatchRows, BeginBatch, CancelBatch, CreateBatch, EndBatch
from schemas.endpoints import ConfirmEndpoint
from schemas.envelope import Context, Rejected, Sha256, Tick, reject
from schemas.erasure import EraseTenant, RecordErasedPart
from schemas.imports import EndImport, RecordImport, StartImport
from schemas.integrations import (
    RemoveTrackingServer,
    SetTrackingServer,
    TrackingServerRemoved,
    TrackingServerSet,
)
from schemas.node import NodeKeysWithdrawn, WithdrawNodeKeys
from schemas.prepaid import GrantPrepaid, RevokePrepaid
from schemas.reasons import refusing
from schemas.streams import GLOBAL
from services.billing.domain import batches, endpoints, imports, plans, prepaid, statements, terms
from services.billing.domain.erasure import decide_erasure, refuse_erased
from services.billing.domain.state import KEYS_MAX, Accounts, AccountState, ApiKey
from tunery.billing.books import refuse_book
from tunery.runtime.journal.senders import refuse_withdrawn


def decide(state: Accounts, command: Command, ctx: Context) -> tuple[Event, ...]:
    """The events of a command: `Rejected` for a refusal, () for a late or repeated fact."""
    if refused := refuse_withdrawn(state.withdrawn, ctx.sender):
        return (refused,)
    if isinstance(command, WithdrawNodeKeys):
        return _withdraw(state, command)
    if isinstance(command, CreateTenant):
        return _create_tenant(state, command, ctx)
    if isinstance(command, ImportPrices):
        return _import_prices(state, command, ctx)
    tenant = state.tenants.get(ctx.key)
    if tenant is None:
        return _without_tenant(command, ctx)
    if erased := refuse_erased(tenant, command, ctx):
        return erased
    match command:
        case SetPlan() | SuspendTenant() | ResumeTenant():
            return plans.decide(tenant, command, ctx, state.books)
        case CreateKey():
            return _create_key(tenant, command, ctx)
        case RotateKey():
            return _rotate_key(tenant, command)
        case RevokeKey():
            return _revoke_key(tenant, command)
        case CreateEndpoint() | ConfirmEndpoint() | Announce() | EndDelivery():
            return endpoints.decide(tenant, command, ctx)
        case ChangeEndpoint() | RotateEndpoint() | DeleteEndpoint() | Deliver():
            return endpoints.decide(tenant, command, ctx)
        case SetTrackingServer(server=server):
            return (TrackingServerSet(server=server),)
        case RemoveTrackingServer():
            return (TrackingServerRemoved(),)
        case EraseTenant() | RecordErasedPart():
            return decide_erasure(tenant, command, ctx)
        case CountAnswers():  # sent again after a doubt, it is dropped by its source
            return (plans.count_answers(tenant, command.uses, ctx.at, state.books),)
        case CreateBatch() | BeginBatch() | AnswerBatchRows() | CancelBatch() | EndBatch():
            return batches.decide(tenant, command, ctx, state.books)
        case StartImport() | RecordImport() | EndImport():
            return imports.decide(tenant, command)
        case RevokePrepaid():
            currency = plans.currency_at(tenant, ctx.at, state.books)
            return prepaid.revoke(tenant.prepaid, command, currency)
        case GrantPrepaid():
            currency = plans.currency_at(tenant, ctx.at, state.books)
            return prepaid.grant(tenant.prepaid, command, ctx, currency)
        case SetBillingTerms():
            return terms.set_terms(tenant, command, ctx, state.books)
        case AdjustInvoice() | CloseInvoice():
            return statements.decide(tenant, command, ctx)
        case Tick():
            return (
                *plans.due_plan(tenant, ctx),
                *batches.due_batches(tenant, ctx),
                *statements.decide(tenant, command, ctx),
            )
        case _:
            assert_never(command)


def _without_tenant(command: Command, ctx: Context) -> tuple[Event, ...]:
    if isinstance(
        command, Announce | EndDelivery | CountAnswers | CloseInvoice | RecordErasedPart | Tick
    ):
        return ()
    return reject(errors.NOT_FOUND, refusing("tenant_missing", tenant=ctx.key))


def _create_tenant(state: Accounts, command: CreateTenant, ctx: Context) -> tuple[Event, ...]:
    if ctx.key in state.tenants:
        return reject(errors.ALREADY_EXISTS, refusing("tenant_exists", tenant=ctx.key), "id")
    wrong = plans.wrong_limits(command.terms.limits)
    terms = plans.with_price(command.terms, state.books)
    return wrong or (TenantCreated(name=command.name, terms=terms),)


def _import_prices(
    state: Accounts, command: ImportPrices, ctx: Context
) -> tuple[PricesImported | Rejected, ...]:
    """Import a price book. A version never changes; a repeat changes nothing."""
    book = command.book
    if ctx.key != GLOBAL:
        return reject(errors.MALFORMED, refusing("prices_not_global"))
    if refusal := refuse_book(book, state.books):
        return reject(errors.MALFORMED, refusal.reason, refusal.field)
    if book.version in state.books:
        return ()
    return (PricesImported(book=book, sha256=command.sha256),)


def _withdraw(state: Accounts, command: WithdrawNodeKeys) -> tuple[Event, ...]:
    number = command.number or 0
    if number <= state.withdrawn.get(command.node_id, 0):
        return ()
    return (NodeKeysWithdrawn(node_id=command.node_id, number=number),)


def _create_key(tenant: AccountState, command: CreateKey, ctx: Context) -> tuple[Event, ...]:
    terms = command.terms
    if terms.key_id in tenant.keys:
        exists = refusing("key_exists", key_id=terms.key_id)
        return reject(errors.ALREADY_EXISTS, exists, "id")
    if sum(key.works_at(ctx.at) for key in tenant.keys.values()) >= KEYS_MAX:
        return reject(errors.ILLEGAL_STATE, refusing("keys_at_most", limit=KEYS_MAX))
    if not terms.scopes:
        return reject(errors.MALFORMED, refusing("scopes_missing"), "scopes")
    return (KeyCreated(terms=terms),)


def _rotate_key(tenant: AccountState, command: RotateKey) -> tuple[Event, ...]:
    key = tenant.keys.get(command.key_id)
    if key is None:
        return reject(errors.NOT_FOUND, refusing("key_missing", key_id=command.key_id), "id")
    if key.revoked:
        return reject(errors.ILLEGAL_STATE, refusing("key_revoked", key_id=command.key_id))
    if command.secret not in (None, key.sha256):
        # the response contains the new secret
        return reject(errors.FORBIDDEN, refusing("key_rotated_by_another"), "id")
    rotation = command.rotation
    rotated = KeyRotated(key_id=command.key_id, rotation=rotation, previous_sha256=key.sha256)
    return (rotated,)


def _revoke_key(tenant: AccountState, command: RevokeKey) -> tuple[Event, ...]:
    key = tenant.keys.get(command.key_id)
    if key is None:
        return reject(errors.NOT_FOUND, refusing("key_missing", key_id=command.key_id), "id")
    if not _may_revoke(tenant, key, command.secret):
        return reject(errors.FORBIDDEN, refusing("key_revoked_by_another"), "id")
    return () if key.revoked else (KeyRevoked(key_id=command.key_id, sha256=key.sha256),)


def _may_revoke(tenant: AccountState, key: ApiKey, secret: Sha256 | None) -> bool:
    """Return whether the caller (operators, the key itself, or KEYS_SCOPE) may revoke a key."""
    if secret in (None, key.sha256):
        return True
    asking = (own for own in tenant.keys.values() if own.sha256 == secret and not own.revoked)
    return ADMIN_SCOPE not in key.scopes and any(KEYS_SCOPE in own.scopes for own in asking)
