"""The usage ledger, what tenants keep, their plans, closed months and adjustments, as rows.

Billing copies what `pool` decided, integer by integer, and joins nothing. A ledger row's key is
the offset of its event in the log, so a row cannot be there twice, and row and position are saved
in one transaction that compares the position first: nothing is counted twice, nothing is skipped.
"""

from typing import Any, Final

from msgspec import to_builtins

from schemas.account import (
    BillingTermsSet,
    CreditNoteIssued,
    InvoiceAdjusted,
    InvoiceClosed,
    PeriodEnded,
    PlanSet,
    PlanTerms,
    PricesImported,
    TenantCreated,
)
from schemas.answers import AnswersCounted
from schemas.envelope import Header, Message
from schemas.erasure import ErasurePartDone, TenantErased
from schemas.pool import UsageCredited, UsageSliced
from schemas.training import LeaseHardware
from schemas.units import HOUR_MS, Ms
from tunery.billing.storage import FOREVER, StorageFact, storage_facts
from tunery.plan.price import billed_lease
from tunery.runtime.verbs import Change, Done, Todo, Upsert

LEDGER_DDL: Final = """
CREATE TABLE IF NOT EXISTS ledger (
    journal_partition integer NOT NULL,
    incarnation bigint NOT NULL,
    journal_offset bigint NOT NULL,
    pool text NOT NULL,
    lease bigint NOT NULL,
    hour_utc integer NOT NULL,
    kind text NOT NULL CHECK (kind IN ('usage', 'credit')),
    cause text NOT NULL,
    tenant text NOT NULL,
    job_id text NOT NULL,
    attempt integer NOT NULL,
    role text NOT NULL,
    lane text NOT NULL,
    price_version text NOT NULL,
    used_gpu_ms bigint NOT NULL CHECK (used_gpu_ms >= 0),
    gpu_ms bigint NOT NULL CHECK (CASE kind WHEN 'usage' THEN gpu_ms >= 0 ELSE gpu_ms <= 0 END),
    at bigint NOT NULL,
    PRIMARY KEY (journal_partition, incarnation, journal_offset, pool, lease, hour_utc, kind, cause)
);
ALTER TABLE ledger
    ADD COLUMN IF NOT EXISTS device text NOT NULL DEFAULT 'cpu',
    ADD COLUMN IF NOT EXISTS accelerator text NOT NULL DEFAULT '',
    ADD COLUMN IF NOT EXISTS spot boolean NOT NULL DEFAULT false,
    ADD COLUMN IF NOT EXISTS tokens bigint NOT NULL DEFAULT 0
        CHECK (CASE kind WHEN 'usage' THEN tokens >= 0 ELSE tokens <= 0 END);
CREATE INDEX IF NOT EXISTS ledger_tenant_hour ON ledger (tenant, hour_utc);
CREATE INDEX IF NOT EXISTS ledger_tenant_job ON ledger (tenant, job_id);
CREATE INDEX IF NOT EXISTS ledger_tenant_position
    ON ledger (tenant, journal_partition, incarnation, journal_offset, hour_utc);
"""
TENANTS_DDL: Final = """
CREATE TABLE IF NOT EXISTS tenants (
    tenant text PRIMARY KEY,
    plan text NOT NULL,
    soft_gpu_ms bigint NOT NULL,
    hard_gpu_ms bigint NOT NULL,
    concurrency integer NOT NULL,
    price_version text NOT NULL
);
CREATE TABLE IF NOT EXISTS held_books (
    tenant text NOT NULL,
    since bigint NOT NULL,
    price_version text NOT NULL,
    PRIMARY KEY (tenant, since)
);
CREATE TABLE IF NOT EXISTS statements (
    tenant text NOT NULL,
    period text NOT NULL,
    ended jsonb,
    statement jsonb,
    closed_at bigint,
    PRIMARY KEY (tenant, period)
);
CREATE TABLE IF NOT EXISTS adjustments (
    tenant text NOT NULL,
    reference text NOT NULL,
    period text NOT NULL,
    reason text NOT NULL,
    currency text NOT NULL,
    amount_micro bigint NOT NULL,
    at bigint NOT NULL,
    PRIMARY KEY (tenant, period, reference)
);
CREATE TABLE IF NOT EXISTS billing_terms (
    tenant text NOT NULL,
    from_month text NOT NULL,
    terms jsonb NOT NULL,
    PRIMARY KEY (tenant, from_month)
);
CREATE TABLE IF NOT EXISTS prices (
    version text PRIMARY KEY,
    book jsonb NOT NULL,
    sha256 text NOT NULL
);
CREATE TABLE IF NOT EXISTS credit_notes (
    tenant text NOT NULL,
    number text NOT NULL,
    period text NOT NULL,
    note jsonb NOT NULL,
    PRIMARY KEY (tenant, number)
);
"""
ANSWERS_DDL: Final = """
CREATE TABLE IF NOT EXISTS answers (
    tenant text NOT NULL,
    hour_utc integer NOT NULL,
    journal_partition integer NOT NULL,
    incarnation bigint NOT NULL,
    journal_offset bigint NOT NULL,
    prompt_tokens bigint NOT NULL CHECK (prompt_tokens >= 0),
    cached_tokens bigint NOT NULL CHECK (cached_tokens >= 0),
    completion_tokens bigint NOT NULL CHECK (completion_tokens >= 0),
    price_version text NOT NULL DEFAULT '',
    PRIMARY KEY (tenant, hour_utc, journal_partition, incarnation, journal_offset)
);
"""
STORAGE_DDL: Final = """
CREATE TABLE IF NOT EXISTS storage (
    tenant text NOT NULL,
    object_id text NOT NULL,
    bytes bigint,
    since bigint,
    until bigint,
    PRIMARY KEY (tenant, object_id)
);
CREATE INDEX IF NOT EXISTS storage_tenant_until ON storage (tenant, until);
"""
CLOSE: Final = "close"
DESTROY_KEY: Final = "destroy_key"


class DestroyKey(Message):
    """To-do: destroy the data key of a tenant of which all else is gone."""


def project_ledger(header: Header, event: Any) -> tuple[Change, ...]:
    """One ledger row for each usage slice, and one for each credit."""
    match event:
        case UsageSliced():
            values = {
                "used_gpu_ms": event.used_gpu_ms,
                "gpu_ms": event.billable_gpu_ms,
                "tokens": event.tokens,
            }
            return (_row(header, event, "usage", "", values),)
        case UsageCredited():
            values = {
                "used_gpu_ms": 0,
                "gpu_ms": -event.lost_gpu_ms,
                "tokens": -event.lost_tokens,
            }
            return (_row(header, event, "credit", event.cause, values),)
        case _:
            return ()


def _row(
    header: Header,
    event: UsageSliced | UsageCredited,
    kind: str,
    cause: str,
    values: dict[str, int],
) -> Upsert:
    lease = billed_lease(event)
    return Upsert(
        table="ledger",
        key={
            "journal_partition": header.partition,
            "incarnation": header.incarnation,
            "journal_offset": header.offset,
            "pool": lease.token.pool,
            "lease": lease.token.lease,
            "hour_utc": event.hour_utc,
            "kind": kind,
            "cause": cause,
        },
        values={
            "tenant": lease.tenant,
            "job_id": lease.job_id,
            "attempt": lease.attempt,
            "role": lease.role,
            "lane": lease.lane,
            "price_version": lease.price_version,
            **to_builtins(lease.hardware or LeaseHardware()),
            "at": header.at,
            **values,
        },
    )


def project_storage(header: Header, event: Any) -> tuple[Change, ...]:
    """Rows of what a tenant keeps or has kept: files, models and what sessions saved."""
    return tuple(_storage(header, fact) for fact in storage_facts(header.key, event))


def _storage(header: Header, fact: StorageFact) -> Upsert:
    if fact.bytes is None:
        values = {"until": header.at}
    else:
        values = {"bytes": fact.bytes, "since": header.at, "until": FOREVER}
    return Upsert("storage", {"tenant": header.tenant, "object_id": fact.object_id}, values)


def project_tenants(header: Header, event: Any) -> tuple[Change, ...]:
    """Rows of tenants, answers, statements and adjustments; to-do rows of months to close."""
    tenant = header.key
    match event:
        case PeriodEnded():
            ended = Upsert(
                "statements", {"tenant": tenant, "period": event.period}, {"ended": event}
            )
            return (ended, Todo(CLOSE, f"{tenant}/{event.period}", tenant, header.tenant, event))
        case InvoiceClosed():
            key = {"tenant": tenant, "period": event.statement.period}
            values = {"statement": event.statement, "closed_at": header.at}
            done = Done(CLOSE, f"{tenant}/{event.statement.period}")
            return (Upsert("statements", key, values), done)
        case InvoiceAdjusted():
            return (_adjustment(header, event),)
        case CreditNoteIssued():
            key = {"tenant": tenant, "number": event.note.number}
            return (Upsert("credit_notes", key, {"period": event.period, "note": event.note}),)
        case PricesImported():  # of every partition, and all the same
            values = {"book": event.book, "sha256": event.sha256}
            return (Upsert("prices", {"version": event.book.version}, values),)
        case BillingTermsSet():
            key = {"tenant": tenant, "from_month": event.from_month}
            return (Upsert("billing_terms", key, {"terms": event.terms}),)
        case TenantCreated():
            return (_tenant(tenant, event.terms), _held_book(tenant, header.at, event.terms))
        case PlanSet():
            since = header.at if event.effective_at is None else event.effective_at
            return (_tenant(tenant, event.terms), _held_book(tenant, since, event.terms))
        case AnswersCounted():
            return (_answers(header, event),)
        case ErasurePartDone(begins=("key",)):
            return (Todo(DESTROY_KEY, tenant, tenant, header.tenant, DestroyKey()),)
        case TenantErased():
            return (Done(DESTROY_KEY, tenant),)
        case _:
            return ()


def _adjustment(header: Header, event: InvoiceAdjusted) -> Upsert:
    return Upsert(
        table="adjustments",
        key={
            "tenant": header.key,
            "period": event.period,
            "reference": event.adjustment.reference,
        },
        values={
            "reason": event.adjustment.reason,
            "currency": event.adjustment.currency,
            "amount_micro": event.adjustment.amount_micro,
            "at": header.at,
        },
    )


def _answers(header: Header, event: AnswersCounted) -> Upsert:
    """Tokens of one record; with the tenant's statements, so a month is closed after its last.

    Those from memory may be of a question that an earlier record counts.
    """
    return Upsert(
        table="answers",
        key={
            "tenant": header.key,
            "hour_utc": header.at // HOUR_MS,
            "journal_partition": header.partition,
            "incarnation": header.incarnation,
            "journal_offset": header.offset,
        },
        values={
            "prompt_tokens": sum(use.prompt_tokens for use in event.uses),
            "cached_tokens": sum(use.cached_tokens for use in event.uses),
            "completion_tokens": sum(use.completion_tokens for use in event.uses),
            "price_version": event.price_version,
        },
    )


def _tenant(tenant: str, terms: PlanTerms) -> Upsert:
    return Upsert(
        table="tenants",
        key={"tenant": tenant},
        values={
            "plan": terms.lane,
            "soft_gpu_ms": terms.limits.soft_gpu_ms,
            "hard_gpu_ms": terms.limits.hard_gpu_ms,
            "concurrency": terms.limits.concurrency,
            "price_version": terms.price_version,
        },
    )


def _held_book(tenant: str, since: Ms, terms: PlanTerms) -> Upsert:
    """Record when a tenant's price book begins; of two at one moment the last one counts."""
    key = {"tenant": tenant, "since": since}
    return Upsert("held_books", key, {"price_version": terms.price_version})
