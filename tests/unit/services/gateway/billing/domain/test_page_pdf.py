"""The PDF of an invoice has what its page has, in letters that every reader can show."""

import base64
import re
import zlib
from importlib.resources import files
from pathlib import Path

import pytest
from reportlab.pdfbase.ttfonts import TTFError

from services.gateway.billing.domain.invoice_page import invoice_page
from services.gateway.billing.domain.invoice_responses import invoice_response, line_responses
from services.gateway.billing.domain.page_pdf import NotPrintable, pdf_of_page
from tests.unit.services.gateway.billing.domain.test_invoice_responses import credited, sample

STREAM = re.compile(rb"stream\n(.*?~>)endstream", re.DOTALL)
SHOWN = re.compile(r"\(((?:[^()\\]|\\.)*)\) Tj")


def page(buyer: str = "acme", copies: int = 1) -> str:
    invoice = invoice_response(credited(), lambda *_: None)
    named = invoice.model_copy(update={"buyer": buyer})
    return invoice_page(named, list(line_responses(credited())) * copies)


def text_of(pdf: bytes) -> str:
    """All text that is shown in fonts of one byte a letter."""
    streams = (base64.a85decode(body, adobe=False) for body in bodies(pdf))
    contents = "\n".join(zlib.decompress(stream).decode("latin-1") for stream in streams)
    return " ".join(" ".join(SHOWN.findall(contents)).split())


def bodies(pdf: bytes) -> list[bytes]:
    return [body.removesuffix(b"~>") for body in STREAM.findall(pdf)]


def test_everything_on_the_page_is_in_the_pdf() -> None:
    pdf = pdf_of_page(page("Müller & Söhne <GmbH>\n1 Street"))
    assert pdf.startswith(b"%PDF-")
    text = text_of(pdf)
    for part in ("2026-11-EUR", "& S\\366hne < GmbH >", "ftjob-1", "last checkpoint", "to pay"):
        assert part in text, text


def test_the_same_page_is_the_same_bytes_and_another_one_is_not() -> None:
    assert pdf_of_page(page()) == pdf_of_page(page())
    assert pdf_of_page(page()) != pdf_of_page(page("other"))


def test_a_long_invoice_has_pages_and_its_head_on_each() -> None:
    lines = invoice_page(
        invoice_response(sample(), lambda *_: None), list(line_responses(sample())) * 60
    )
    pdf = pdf_of_page(lines)
    count = len(re.findall(rb"/Type /Page\b", pdf))
    assert count > 3
    assert text_of(pdf).count("GPU-hours") == count


@pytest.mark.parametrize(
    "buyer",
    ["Łukasz Çağrı", "Иван Петров", "ΕΛΛΑΣ", "株式会社トヨタ", "北京公司", "삼성전자", "臺灣"],
)
def test_names_in_many_letters_are_printed(buyer: str) -> None:
    assert pdf_of_page(page(buyer)).startswith(b"%PDF-")


@pytest.mark.parametrize("buyer", ["Łódź", "שלום", "مرحبا", "สวัสดี", "🙂"])
def test_letters_that_no_font_has_are_refused_and_named(buyer: str) -> None:
    with pytest.raises(NotPrintable, match="ź" if buyer == "Łódź" else buyer):
        pdf_of_page(page(buyer))


def test_a_font_of_the_operator_adds_its_letters(tmp_path: Path) -> None:
    font = Path(str(files("reportlab") / "fonts" / "VeraBd.ttf"))
    pdf = pdf_of_page(page("Müller"), font)
    assert pdf == pdf_of_page(page("Müller"))  # it is used where the others lack a letter
    broken = tmp_path / "broken.ttf"
    broken.write_bytes(b"no font")
    with pytest.raises(TTFError):
        pdf_of_page(page(), broken)
