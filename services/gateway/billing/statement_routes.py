"""A job's statement: every slice of use and every credit, with the event it comes from."""

from typing import Annotated, Final

from fastapi import Query

from services.gateway.accounts.deps import NamedTenant
from services.gateway.billing.responses import StatementLineResponse, statement_line_response
from services.gateway.jobs.deps import WithJobDeps
from services.gateway.jobs.routes import find_job
from services.gateway.jobs.tables import USAGE
from services.gateway.web.pages import After, page
from services.gateway.web.responses import Page, listing
from services.gateway.web.routing import new_router

LIMIT: Final = 100
LIMIT_MAX: Final = 1_000
router = new_router("billing")


@router.get("/v1/fine_tuning/jobs/{job_id}/statement")
async def job_statement(
    job_id: str,
    deps: WithJobDeps,
    tenant: NamedTenant,
    after: After = None,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = LIMIT,
) -> Page[StatementLineResponse]:
    """List a job's slices of use and credits in the order of the log."""
    await find_job(deps, tenant, job_id)
    where = {"tenant": tenant, "job_id": job_id}
    rows, more = await page(deps.views, USAGE, where, limit=limit, after=after, descending=False)
    return listing(Page[StatementLineResponse], list(map(statement_line_response, rows)), more)
