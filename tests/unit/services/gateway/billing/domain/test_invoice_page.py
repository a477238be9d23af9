"""The page of an invoice: everything is on it, and a tenant's text is only text."""

from html.parser import HTMLParser

from msgspec.structs import replace

from services.gateway.billing.domain.invoice_page import invoice_page
from services.gateway.billing.domain.invoice_responses import invoice_response, line_responses
from tests.unit.services.gateway.billing.domain.test_invoice_responses import (
    credited,
    prepaid,
    sample,
)

HOSTILE = "<script>alert(1)</script>\"'&"


class Tags(HTMLParser):
    """Names of all tags, and all text."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_every_line_and_the_total_are_on_the_page() -> None:
    invoice = invoice_response(sample(), lambda *_: None)
    tags = Tags()
    tags.feed(invoice_page(invoice, list(line_responses(sample()))))
    for text in ("2026-11-EUR", "acme", "ftjob-1", "T-17", "VAT 19 %", "-5.950000"):
        assert text in tags.text


def test_text_of_a_tenant_is_escaped() -> None:
    invoice = invoice_response(sample(), lambda *_: None)
    hostile = invoice.model_copy(update={"buyer": HOSTILE, "seller": HOSTILE, "number": HOSTILE})
    lines = [
        line.model_copy(update={"description": HOSTILE, "job_id": HOSTILE})
        for line in line_responses(sample())
    ]
    tags = Tags()
    tags.feed(invoice_page(hostile, lines))
    assert "script" not in tags.names
    assert HOSTILE in tags.text


def test_refund_rules_are_on_the_page_where_something_is_credited() -> None:
    pages = [
        invoice_page(invoice_response(invoice, lambda *_: None), list(line_responses(invoice)))
        for invoice in (sample(), credited())
    ]
    assert ["work since the last checkpoint" in page for page in pages] == [False, True]


def test_what_was_prepaid_and_carried_forward_are_on_the_page() -> None:
    below = replace(sample(), carried_micro=5_950_000, due_micro=0)
    for invoice, texts in (
        (prepaid(), ("119.000000", "prepaid, P-1", "-100.000000", "19.000000")),
        (below, ("carried forward", "5.950000", "0.000000")),
    ):
        tags = Tags()
        lines = list(line_responses(invoice))
        tags.feed(invoice_page(invoice_response(invoice, lambda *_: None), lines))
        assert [text for text in texts if text not in tags.text] == []
