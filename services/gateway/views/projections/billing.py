"""`account` → months, adjustments, credit notes, terms and prepaid credits of bills; `dataset` and
`model` → what tenants keep.
"""

from msgspec.structs import asdict

from schemas.account import (
    BillingTermsSet,
    CreditNoteIssued,
    Event,
    InvoiceAdjusted,
    InvoiceClosed,
    PeriodEnded,
    PlanSet,
    TenantCreated,
)
from schemas.answers import AnswersCounted
from schemas.dataset import Event as DatasetEvent
from schemas.envelope import Header
from schemas.model import Event as ModelEvent
from schemas.prepaid import PrepaidExpired, PrepaidGranted, PrepaidRevoked
from schemas.session import Event as SessionEvent
from schemas.units import Ms, hour_of
from services.gateway.views.tables.billing import (
    ADJUSTMENTS,
    ANSWER_USES,
    BILLING_TERMS,
    CREDIT_NOTES,
    HELD_BOOKS,
    MONTHS,
    PREPAID,
    STORED,
    AdjustmentRow,
    AnswerUseRow,
    BillingTermsRow,
    CreditNoteRow,
    HeldBookRow,
    MonthRow,
    PrepaidRow,
    StoredRow,
)
from tunery.billing.storage import FOREVER, StorageFact, storage_facts
from tunery.runtime.verbs import Change


def project_bills(header: Header, event: Event) -> tuple[Change, ...]:
    """Rows of bills that follow from one event of `account`; other events have none."""
    tenant = header.key
    match event:
        case PeriodEnded():
            return (MONTHS.insert(MonthRow(tenant=tenant, id=event.period, ended=event)),)
        case InvoiceClosed(statement=statement):
            key = {"tenant": tenant, "id": statement.period}
            uses = [use for bill in statement.bills for use in bill.prepaid]
            return (
                MONTHS.update(key, statement=statement),
                *(
                    PREPAID.update(
                        {"tenant": tenant, "id": use.reference}, left_micro=use.left_micro
                    )
                    for use in uses
                ),
            )
        case PrepaidGranted(credit=credit, first_month=first_month):
            granted = PrepaidRow(
                tenant=tenant,
                id=credit.reference,
                at=header.at,
                credit=credit,
                first_month=first_month,
                left_micro=credit.amount_micro,
            )
            return (PREPAID.insert(granted),)
        case PrepaidExpired(reference=reference, amount_micro=amount_micro):
            key = {"tenant": tenant, "id": reference}
            return (PREPAID.update(key, left_micro=0, expired_micro=amount_micro),)
        case PrepaidRevoked(reference=reference, amount_micro=amount_micro):
            key = {"tenant": tenant, "id": reference}
            return (PREPAID.update(key, left_micro=0, revoked_micro=amount_micro),)
        case InvoiceAdjusted(period=period, adjustment=adjustment):
            row = AdjustmentRow(
                tenant=tenant,
                period=period,
                id=adjustment.reference,
                at=header.at,
                adjustment=adjustment,
            )
            return (ADJUSTMENTS.insert(row),)
        case CreditNoteIssued(period=period, note=note):
            row_of_note = CreditNoteRow(tenant=tenant, period=period, id=note.number, note=note)
            return (CREDIT_NOTES.insert(row_of_note),)
        case AnswersCounted():
            return _answer_uses(header, event)
        case TenantCreated(terms=plan):
            return (_held_book(tenant, header.at, plan.price_version),)
        case PlanSet(terms=plan, effective_at=effective_at):
            since = header.at if effective_at is None else effective_at
            return (_held_book(tenant, since, plan.price_version),)
        case BillingTermsSet(terms=terms, from_month=month):
            return (BILLING_TERMS.insert(BillingTermsRow(tenant=tenant, id=month, terms=terms)),)
        case _:
            return ()


def _answer_uses(header: Header, event: AnswersCounted) -> tuple[Change, ...]:
    position = f"{header.partition}/{header.incarnation}/{header.offset:016}"
    return tuple(
        ANSWER_USES.insert(
            AnswerUseRow(
                tenant=header.key,
                id=f"{position}/{index:04}",
                hour_utc=hour_of(header.at),
                price_version=event.price_version,
                **asdict(use),
            )
        )
        for index, use in enumerate(event.uses)
    )


def _held_book(tenant: str, since: Ms, price_version: str) -> Change:
    held = HeldBookRow(tenant=tenant, id=f"{since:016}", since=since, price_version=price_version)
    return HELD_BOOKS.insert(held)


def project_storage(
    header: Header, event: DatasetEvent | ModelEvent | SessionEvent
) -> tuple[Change, ...]:
    """Rows of what is stored, which stay when it is deleted: its months are billed."""
    return tuple(_stored(header, fact) for fact in storage_facts(header.key, event))


def _stored(header: Header, fact: StorageFact) -> Change:
    if fact.bytes is None:
        return STORED.update({"tenant": header.tenant, "id": fact.object_id}, until=header.at)
    kept = StoredRow(
        tenant=header.tenant, id=fact.object_id, bytes=fact.bytes, since=header.at, until=FOREVER
    )
    return STORED.insert(kept)
