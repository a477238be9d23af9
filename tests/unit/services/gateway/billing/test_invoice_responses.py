"""Invoices and their lines, as the API shows them."""

from msgspec.structs import replace

from schemas.billing import BillingTerms, InvoiceAdjustment, PriceBook, TaxRate
from services.gateway.billing.invoice_responses import invoice_response, line_responses
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


def sample(soft: int | None = None) -> Invoice:
    """A draft with two seconds of use, an adjustment, the rounding and a tax."""
    used = LedgerRow(
        kind="usage",
        job_id="ftjob-1",
        role="train",
        lane="standard",
        price_version="v",
        hour_utc=MONTH.first_hour,
        used_gpu_ms=2_000,
        gpu_ms=2_000,
    )
    billed = BilledMonth(
        tenant="acme",
        month=MONTH,
        soft_gpu_ms=soft,
        currency="EUR",
        terms=BillingTerms(taxes=(TaxRate(name="VAT", rate_ppm=190_000),)),
        adjustments=(GOODWILL,),
    )
    (invoice,) = make_invoices(billed, select_usage([used], BillShare(month=MONTH)), {"v": BOOK})
    return invoice


def test_lines_add_up_to_the_total_and_have_ids_of_their_own() -> None:
    invoice = sample()
    lines = list(line_responses(invoice))
    assert [line.kind for line in lines] == ["usage", "adjustment", "rounding", "tax"]
    assert sum(line.amount_micro for line in lines) == invoice.total_micro
    assert len({line.id for line in lines}) == len(lines)
    assert lines[0].hour_start == MONTH.first_hour * 3_600


def test_a_draft_has_no_number_and_is_made_out_to_the_tenant() -> None:
    shown = invoice_response(sample(), lambda _: None)
    assert (shown.id, shown.number, shown.seller, shown.buyer) == (
        "2026-11-EUR",
        None,
        None,
        "acme",
    )
    numbered = replace(sample(), number="7", issued_at=1_000, seller="Us")
    shown = invoice_response(numbered, lambda _: "Acme Ltd")
    assert (shown.number, shown.issued_at, shown.seller) == ("7", 1, "Us")
