"""`/v1/models/{id}/gate/report`: what the gate found about a version, as a page for people."""

from starlette.responses import HTMLResponse

from schemas import errors
from services.gateway.jobs.deps import WithJobDeps
from services.gateway.jobs.domain.gate_report import report_page
from services.gateway.jobs.domain.gate_responses import gate_response
from services.gateway.models.routes import find_version
from services.gateway.views.tables.jobs import JOBS
from services.gateway.web.deps import Caller
from services.gateway.web.domain.errors import ApiError
from services.gateway.web.domain.html import SECURITY
from services.gateway.web.routing import new_router
from services.gateway.web.storage import within
from tunery.work.codec import decode_scores

router = new_router("models")


@router.get("/v1/models/{model_id:path}/gate/report", response_class=HTMLResponse)
async def gate_report(model_id: str, deps: WithJobDeps, caller: Caller) -> HTMLResponse:
    """The gate's report as one page of HTML: statistics, plots, and each item that differs.

    It loads nothing and has no scripts, so that it can be kept and sent as a file.
    """
    version = await find_version(deps, caller, model_id)
    job = await deps.views.first(JOBS, {"tenant": caller.tenant, "id": version.gate_job})
    if job is None or job.gate is None or job.scores is None:
        message = f"The gate has not judged {model_id}: there is no report of it."
        raise ApiError(404, errors.NOT_FOUND, message, "id")
    data = await within(deps.blobs.get(job.scores.blob, sha256=job.scores.sha256))
    page = report_page(
        version.id, gate_response(job.gate, job.settled.hyper.adaptation), decode_scores(data)
    )
    return HTMLResponse(page, headers=SECURITY)
