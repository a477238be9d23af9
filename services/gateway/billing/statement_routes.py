"""A job's statement: every slice of use and every credit, with the event it comes from."""

from typing import Final

from services.gateway.accounts.deps import NamedTenant
from services.gateway.billing.domain.responses import StatementLineResponse, statement_line_response
from services.gateway.jobs.deps import WithJobDeps
from services.gateway.jobs.routes import find_job
from services.gateway.views.ports import Where
from services.gateway.views.tables.jobs import USAGE
from services.gateway.web.resources import Resource, each
from services.gateway.web.routing import new_router

router = new_router("billing")


async def usage_of_job(job_id: str, deps: WithJobDeps, tenant: NamedTenant) -> Where:
    """Slices of use and credits of a job. Raises ApiError 404."""
    await find_job(deps, tenant, job_id)
    return {"tenant": tenant, "job_id": job_id}


STATEMENT_LINE: Final = Resource(
    noun="statement line",
    table=USAGE,
    response=StatementLineResponse,
    respond=each(lambda _, row: statement_line_response(row)),
    rows=usage_of_job,
    newest_first=False,
)
STATEMENT_LINE.add_list(
    router,
    "/v1/fine_tuning/jobs/{job_id}/statement",
    "job_statement",
    "List a job's slices of use and credits in the order of the log.",
)
