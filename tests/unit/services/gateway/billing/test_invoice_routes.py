"""`/v1/invoices`: the months of a tenant, through the deciders of billing."""

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from schemas.account import AdjustInvoice, SetBillingTerms
from schemas.billing import BillingTerms, InvoiceAdjustment, TaxRate
from schemas.topics import ACCOUNT
from schemas.units import HOUR_MS
from tests.unit.services.gateway.billing.used import credited, lease, sliced, use
from tests.unit.services.gateway.control_plane import ControlPlane

MONTH = f"{datetime.now(UTC):%Y-%m}"
DRAFT = f"/v1/invoices/{MONTH}-EUR"


def has_tax_and_adjustment(lines: dict[str, Any]) -> bool:
    return {"adjustment", "tax"} <= {line["kind"] for line in lines["data"]}


async def billed(api: ControlPlane, job_id: str = "ftjob-1") -> httpx.AsyncClient:
    """A tenant with an hour of use, part of it credited, an adjustment and a tax."""
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    hour = api.deps.clock.now_ms() // HOUR_MS
    ref = lease(tenant, job_id)
    await use(api, sliced(ref, hour, HOUR_MS), credited(ref, hour, 1_000_000))
    terms = BillingTerms(taxes=(TaxRate(name="VAT", rate_ppm=190_000),))
    await api.send(ACCOUNT, tenant, SetBillingTerms(terms=terms))
    adjustment = InvoiceAdjustment(
        reference="T-1", amount_micro=-5, currency="EUR", reason="goodwill"
    )
    await api.send(ACCOUNT, tenant, AdjustInvoice(adjustment=adjustment))
    await api.until(client, f"{DRAFT}/lines", has_tax_and_adjustment)
    return client


async def test_the_running_month_is_a_draft_whose_lines_add_up_to_its_total(
    api: ControlPlane,
) -> None:
    client = await billed(api)
    (listed,) = (await client.get("/v1/invoices")).json()["data"]
    draft = (await client.get(DRAFT)).json()
    assert listed == draft
    assert (draft["status"], draft["number"], draft["currency"]) == ("draft", None, "EUR")
    assert draft["buyer"] == client.headers["x-tenant"]
    assert (draft["used_gpu_ms"], draft["credited_gpu_ms"]) == (HOUR_MS, 1_000_000)
    lines = (await client.get(f"{DRAFT}/lines")).json()["data"]
    assert [line["kind"] for line in lines] == ["usage", "credit", "adjustment", "rounding", "tax"]
    assert sum(line["amount_micro"] for line in lines) == draft["total_micro"]
    assert draft["net_micro"] == draft["amount_micro"] + draft["rounding_micro"]


async def test_an_invoice_is_a_page_without_scripts(api: ControlPlane) -> None:
    client = await billed(api)
    page = await client.get(f"{DRAFT}/page")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert "ftjob-1" in page.text
    assert (await client.get("/v1/invoices/1999-01-EUR/page")).status_code == 404


async def test_an_invoice_is_a_pdf_unless_no_font_has_its_letters(api: ControlPlane) -> None:
    client = await billed(api)
    pdf = await client.get(f"{DRAFT}/pdf")
    assert (pdf.headers["content-type"], pdf.content[:5]) == ("application/pdf", b"%PDF-")
    assert pdf.headers["content-disposition"] == f'inline; filename="{MONTH}-EUR.pdf"'
    assert (await client.get("/v1/invoices/1999-01-EUR/pdf")).status_code == 404
    adjustment = InvoiceAdjustment(
        reference="שלום", amount_micro=-5, currency="EUR", reason="goodwill"
    )
    await api.send(ACCOUNT, client.headers["x-tenant"], AdjustInvoice(adjustment=adjustment))
    await api.until(client, f"{DRAFT}/lines", lambda lines: "שלום" in str(lines))
    refused = await client.get(f"{DRAFT}/pdf")
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invoice_not_printable")
    assert f"{DRAFT}/page" in refused.json()["error"]["message"]


async def test_lines_are_paged(api: ControlPlane) -> None:
    client = await billed(api)
    whole = (await client.get(f"{DRAFT}/lines")).json()["data"]
    paged: list[dict[str, Any]] = []
    query: dict[str, Any] = {"limit": 2}
    while True:
        page = (await client.get(f"{DRAFT}/lines", params=query)).json()
        paged += page["data"]
        if not page["has_more"]:
            break
        query["after"] = page["last_id"]
    assert paged == whole
    unknown = await client.get(f"{DRAFT}/lines", params={"after": "line_x"})
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (404, "after")


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("2999-01-EUR", 400),  # has not begun
        ("1999-01-EUR", 404),  # before the tenant
        (f"{MONTH}-XXX", 404),
        (f"{MONTH}-eur", 404),
        ("2026-13-EUR", 400),
        ("0000-00-EUR", 400),
        ("9999-12-EUR", 400),
        ("x", 404),
    ],
)
async def test_an_unknown_invoice_is_named(api: ControlPlane, name: str, status: int) -> None:
    client = await api.tenant()
    for path in (f"/v1/invoices/{name}", f"/v1/invoices/{name}/lines"):
        answer = await client.get(path)
        assert (answer.status_code, answer.json()["error"]["param"]) == (status, "invoice_id")


async def test_a_list_goes_on_after_an_invoice(api: ControlPlane) -> None:
    client = await billed(api)
    after = await client.get("/v1/invoices", params={"after": f"{MONTH}-EUR"})
    assert after.json()["data"] == []
    assert (await client.get("/v1/invoices", params={"after": "x"})).status_code == 404


async def test_one_month_may_be_asked_for(api: ControlPlane) -> None:
    client = await api.tenant()
    (only,) = (await client.get("/v1/invoices", params={"period": MONTH})).json()["data"]
    assert (only["id"], only["total_micro"]) == (f"{MONTH}-EUR", 0)
    for wrong in ("2999-01", "november", "9999-12", ""):
        answer = await client.get("/v1/invoices", params={"period": wrong})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "period")


async def test_another_tenants_invoices_are_for_operators(api: ControlPlane) -> None:
    owner, other = await billed(api), await api.tenant()
    query = {"tenant": owner.headers["x-tenant"]}
    assert (await other.get(DRAFT, params=query)).status_code == 403
    shown = (await api.api.get(DRAFT, params=query)).json()
    assert shown == (await owner.get(DRAFT)).json()
