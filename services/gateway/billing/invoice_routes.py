"""`/v1/invoices`: the bills of a tenant, and their lines."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import Query
from starlette.responses import HTMLResponse, Response

from services.gateway.accounts.deps import NamedTenant
from services.gateway.billing.domain.invoice_page import invoice_page
from services.gateway.billing.domain.invoice_responses import (
    InvoiceLineResponse,
    InvoiceResponse,
    invoice_response,
    line_responses,
)
from services.gateway.billing.domain.invoice_sums import (
    SUM_GROUPS,
    InvoiceSumResponse,
    sums_of_lines,
)
from services.gateway.billing.domain.page_pdf import NotPrintable, pdf_of_page
from services.gateway.billing.domain.usage import groups_of
from services.gateway.billing.invoice_reads import (
    begun_months,
    find_invoice,
    find_tenant,
    read_invoices,
)
from services.gateway.billing.job_facts import job_facts
from services.gateway.web.deps import WithDeps
from services.gateway.web.domain.errors import ApiError, not_found
from services.gateway.web.domain.html import SECURITY
from services.gateway.web.domain.responses import Page, listing
from services.gateway.web.pages import After
from services.gateway.web.routing import new_router

PDF: Final = "application/pdf"
NOT_PRINTABLE: Final = "invoice_not_printable"
LIMIT: Final = 12  # months of a year
LIMIT_MAX: Final = 24  # a draft is computed from its usage
LINES_LIMIT: Final = 100
LINES_LIMIT_MAX: Final = 1_000
GroupedBy = Annotated[
    list[str] | None,
    Query(
        max_length=len(SUM_GROUPS) + 1,
        description=f"of {', '.join(SUM_GROUPS)}, metadata[NAME]; repeated, or with commas",
    ),
]
router = new_router("billing", "/v1/invoices")


@router.get("")
async def list_invoices(
    deps: WithDeps,
    tenant: NamedTenant,
    after: After = None,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = LIMIT,
    period: Annotated[str | None, Query(max_length=16, description="one month: 2026-11")] = None,
) -> Page[InvoiceResponse]:
    """List invoices, newest first: one for each month and currency; this month is a draft."""
    invoices: list[InvoiceResponse] = []
    passed = after is None
    billed = await find_tenant(deps, tenant)
    for month in begun_months(deps, billed, period):
        if not passed and not (after or "").startswith(month.name):
            continue
        for invoice in await read_invoices(deps, billed, month):
            response = invoice_response(invoice, deps.unseal)
            if passed:
                invoices.append(response)
            passed = passed or response.id == after
        if len(invoices) > limit:
            break
    if not passed:
        raise not_found("invoice", after or "", "after")
    return listing(Page[InvoiceResponse], invoices[:limit], len(invoices) > limit)


@router.get("/{invoice_id}")
async def retrieve_invoice(invoice_id: str, deps: WithDeps, tenant: NamedTenant) -> InvoiceResponse:
    """An invoice by its id, month and currency: `2026-11-EUR`."""
    return invoice_response(await find_invoice(deps, tenant, invoice_id), deps.unseal)


@router.get("/{invoice_id}/page", response_class=HTMLResponse)
async def print_invoice(invoice_id: str, deps: WithDeps, tenant: NamedTenant) -> HTMLResponse:
    """An invoice with all its lines as an HTML page to print."""
    invoice = await find_invoice(deps, tenant, invoice_id)
    lines = list(line_responses(invoice))
    return HTMLResponse(
        invoice_page(invoice_response(invoice, deps.unseal), lines), headers=SECURITY
    )


@router.get(
    "/{invoice_id}/pdf",
    response_class=Response,
    responses={200: {"content": {PDF: {}}}},
)
async def print_invoice_as_pdf(invoice_id: str, deps: WithDeps, tenant: NamedTenant) -> Response:
    """An invoice with all its lines as PDF."""
    invoice = await find_invoice(deps, tenant, invoice_id)
    response = invoice_response(invoice, deps.unseal)
    page = invoice_page(response, list(line_responses(invoice)))
    try:
        pdf = await asyncio.to_thread(pdf_of_page, page, deps.settings.pdf_font)
    except NotPrintable as error:
        text = f"No font has all letters of {error}: print /v1/invoices/{response.id}/page instead."
        raise ApiError(422, NOT_PRINTABLE, text) from error
    name = {"content-disposition": f'inline; filename="{response.id}.pdf"'}
    return Response(pdf, media_type=PDF, headers=name)


@router.get("/{invoice_id}/lines")
async def list_invoice_lines(
    invoice_id: str,
    deps: WithDeps,
    tenant: NamedTenant,
    after: After = None,
    limit: Annotated[int, Query(ge=1, le=LINES_LIMIT_MAX)] = LINES_LIMIT,
) -> Page[InvoiceLineResponse]:
    """List an invoice's lines in their order; their amounts add up to its total."""
    lines = list(line_responses(await find_invoice(deps, tenant, invoice_id)))
    start = 0 if after is None else _position(lines, after)
    return listing(
        Page[InvoiceLineResponse], lines[start : start + limit], len(lines) > start + limit
    )


@router.get("/{invoice_id}/sums")
async def sum_invoice_lines(
    invoice_id: str, deps: WithDeps, tenant: NamedTenant, group_by: GroupedBy = None
) -> Page[InvoiceSumResponse]:
    """Sum an invoice's lines per job, or per key, model, suffix or a name of metadata.

    The last sum is of the lines that are of no job: storage, contract terms, adjustments, rounding,
    taxes. All of them add up to the invoice's total.
    """
    grouped = groups_of(group_by or ("job",), SUM_GROUPS)
    invoice = await find_invoice(deps, tenant, invoice_id)
    lines = list(line_responses(invoice))
    facts = await job_facts(deps, tenant, {line.job_id for line in lines if line.job_id})
    return listing(Page[InvoiceSumResponse], sums_of_lines(lines, grouped, facts), False)


def _position(lines: Sequence[InvoiceLineResponse], after: str) -> int:
    for number, line in enumerate(lines, 1):
        if line.id == after:
            return number
    raise not_found("line", after, "after")
