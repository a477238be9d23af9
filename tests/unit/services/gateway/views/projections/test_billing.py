"""Given events of `account`, then rows of bills."""

from msgspec.structs import replace

from schemas.account import (
    BillingTermsSet,
    CreditNoteIssued,
    InvoiceAdjusted,
    InvoiceClosed,
    PeriodEnded,
)
from schemas.billing import (
    Bill,
    BillingTerms,
    CreditNote,
    InvoiceAdjustment,
    PrepaidCredit,
    PrepaidUse,
    Statement,
)
from schemas.prepaid import PrepaidExpired, PrepaidGranted
from services.gateway.billing.contract_routes import prepaid_response
from services.gateway.views.tables.billing import (
    ADJUSTMENTS,
    BILLING_TERMS,
    CREDIT_NOTES,
    MONTHS,
    PREPAID,
)
from tests.unit.services.gateway.view_rows import folded, only

ENDED = PeriodEnded(period="2026-11", soft_gpu_ms=9, before=None)
CLOSED = Statement(
    period="2026-11", cut=(1,) * 8, currency="EUR", soft_gpu_ms=9, gpu_ms=1, amount_micro=2
)
ADJUSTMENT = InvoiceAdjustment(reference="T-1", amount_micro=-5, currency="EUR", reason="goodwill")
NOTE = CreditNote(
    number="C-1",
    invoice="1",
    adjustment=ADJUSTMENT,
    net_micro=-10_000,
    taxes=(),
    total_micro=-10_000,
    issued_at=5,
)


def test_a_month_is_over_and_then_closed() -> None:
    over = only(folded("account", ENDED), MONTHS)
    assert (over.id, over.ended, over.statement) == ("2026-11", ENDED, None)
    assert (
        only(folded("account", ENDED, InvoiceClosed(statement=CLOSED)), MONTHS).statement == CLOSED
    )


def test_a_prepaid_credit_is_used_and_expires() -> None:
    credit = PrepaidCredit(reference="P-1", amount_micro=10, currency="EUR", last_month="2026-11")
    use = PrepaidUse(reference="P-1", amount_micro=4, left_micro=6)
    bill = Bill(
        currency="EUR",
        gpu_ms=1,
        amount_micro=4,
        net_micro=4,
        taxes=(),
        total_micro=4,
        prepaid=(use,),
    )
    records = folded(
        "account",
        PrepaidGranted(credit=credit, first_month="2026-11"),
        InvoiceClosed(statement=replace(CLOSED, bills=(bill,))),
    )
    assert prepaid_response(only(records, PREPAID)).used_micro == 4
    folded("account", PrepaidExpired(reference="P-1", amount_micro=6), records=records)
    shown = prepaid_response(only(records, PREPAID))
    assert (shown.used_micro, shown.expired_micro, shown.left_micro) == (4, 6, 0)


def test_what_is_on_bills_besides_use_has_rows() -> None:
    records = folded(
        "account",
        InvoiceAdjusted(period="2026-11", adjustment=ADJUSTMENT),
        CreditNoteIssued(period="2026-10", note=NOTE),
        BillingTermsSet(terms=BillingTerms(due_days=3)),
    )
    adjustment, note = only(records, ADJUSTMENTS), only(records, CREDIT_NOTES)
    assert (adjustment.period, adjustment.id, adjustment.adjustment) == (
        "2026-11",
        "T-1",
        ADJUSTMENT,
    )
    assert (note.period, note.id, note.note) == ("2026-10", "C-1", NOTE)
    assert only(records, BILLING_TERMS).terms.due_days == 3
