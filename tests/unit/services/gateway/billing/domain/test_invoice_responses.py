"""Invoices and their lines, as the API shows them."""

from msgspec.structs import replace

from schemas.billing import BillingTerms, InvoiceAdjustment, PrepaidUse, PriceBook, TaxRate
from services.gateway.billing.domain.invoice_responses import invoice_response, line_responses
from tunery.billing.invoice import BilledMonth, Invoice, make_invoices
from tunery.billing.lines import LedgerRow, select_usage
from tunery.billing.periods import BillShare, period

BOOK = PriceBook(
    version="v", currency="EUR", gpu_hour_micro={"standard": 3_600_000}, token_micro_per_million=0
)
MONTH = period("2026-11")
GOODWILL = InvoiceAdjustment(
    reference="T-17", reason="goodwill", currency="EUR", amount_micro=-5_000_000
)


USED = LedgerRow(
    kind="usage",
    job_id="ftjob-1",
    role="train",
    lane="standard",
    price_version="v",
    hour_utc=MONTH.first_hour,
    used_gpu_ms=2_000,
    gpu_ms=2_000,
)


def sample(soft: int | None = None, *rows: LedgerRow) -> Invoice:
    """A draft with two seconds of use, more `rows`, an adjustment, the rounding and a tax."""
    billed = BilledMonth(
        tenant="acme",
        month=MONTH,
        soft_gpu_ms=soft,
        currency="EUR",
        terms=BillingTerms(taxes=(TaxRate(name="VAT", rate_ppm=190_000),)),
        adjustments=(GOODWILL,),
    )
    usage = select_usage([USED, *rows], BillShare(month=MONTH))
    (invoice,) = make_invoices(billed, usage, {"v": BOOK})
    return invoice


def credited() -> Invoice:
    """The draft of `sample` with a credit for a machine that was lost."""
    return sample(None, replace(USED, kind="credit", used_gpu_ms=0, gpu_ms=-1_000, cause="lost"))


def prepaid() -> Invoice:
    """A closed invoice of 119.00 of which 100.00 were prepaid."""
    use = PrepaidUse(reference="P-1", amount_micro=100_000_000, left_micro=5_000_000)
    amounts = {"total_micro": 119_000_000, "due_micro": 19_000_000}
    return replace(sample(), number="acme-0001", status="closed", prepaid=(use,), **amounts)


def test_what_was_prepaid_is_shown_and_what_is_to_be_paid() -> None:
    shown = invoice_response(prepaid(), lambda *_: None)
    (use,) = shown.prepaid
    assert (use.reference, use.amount_micro, use.left_micro) == ("P-1", 100_000_000, 5_000_000)
    assert (shown.total_micro, shown.due_micro, shown.carried_micro) == (119_000_000, 19_000_000, 0)


def test_lines_add_up_to_the_total_and_have_ids_of_their_own() -> None:
    invoice = sample()
    lines = list(line_responses(invoice))
    assert [line.kind for line in lines] == ["usage", "adjustment", "rounding", "tax"]
    assert sum(line.amount_micro for line in lines) == invoice.total_micro
    assert len({line.id for line in lines}) == len(lines)
    assert lines[0].hour_start == MONTH.first_hour * 3_600


def test_a_draft_has_no_number_and_is_made_out_to_the_tenant() -> None:
    shown = invoice_response(sample(), lambda *_: None)
    assert (shown.id, shown.number, shown.seller, shown.buyer) == (
        "2026-11-EUR",
        None,
        None,
        "acme",
    )
    numbered = replace(sample(), number="7", issued_at=1_000, seller="Us")
    shown = invoice_response(numbered, lambda *_: "Acme Ltd")
    assert (shown.number, shown.issued_at, shown.seller) == ("7", 1_000, "Us")


def test_money_a2_the_refund_rules_of_credited_lines_are_in_the_note() -> None:
    assert invoice_response(sample(), lambda *_: None).refund_rules == []
    (rule,) = invoice_response(credited(), lambda *_: None).refund_rules
    assert (rule.cause, rule.given_back) == ("lost", "work since the last checkpoint")
    assert [line.cause for line in line_responses(credited())][:2] == [None, "lost"]
