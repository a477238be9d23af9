"""`account` → months, adjustments, credit notes and terms of bills."""

from schemas.account import (
    BillingTermsSet,
    CreditNoteIssued,
    Event,
    InvoiceAdjusted,
    InvoiceClosed,
    PeriodEnded,
)
from schemas.envelope import Header
from services.gateway.billing.tables import (
    ADJUSTMENTS,
    BILLING_TERMS,
    CREDIT_NOTES,
    MONTHS,
    AdjustmentRow,
    BillingTermsRow,
    CreditNoteRow,
    MonthRow,
)
from tunery.runtime.verbs import Change


def project_bills(header: Header, event: Event) -> tuple[Change, ...]:
    """Rows of bills that follow from one event of `account`; other events have none."""
    tenant = header.key
    match event:
        case PeriodEnded():
            return (MONTHS.insert(MonthRow(tenant=tenant, id=event.period, ended=event)),)
        case InvoiceClosed(statement=statement):
            key = {"tenant": tenant, "id": statement.period}
            return (MONTHS.update(key, statement=statement),)
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
        case BillingTermsSet(terms=terms):
            return (BILLING_TERMS.insert(BillingTermsRow(id=tenant, terms=terms)),)
        case _:
            return ()
