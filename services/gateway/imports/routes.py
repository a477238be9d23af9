"""`/v1/imports`: reads accounts, and trains what was planned, the price first."""

import json
from collections.abc import Mapping
from typing import Any, Final

from schemas import errors
from schemas.ids import IMPORT
from schemas.imports import EndImport, ImportResult, ImportTerms, StartImport
from schemas.topics import ACCOUNT
from services.gateway.files.routes import known_file
from services.gateway.imports.domain.bodies import (
    ImportRequest,
    TrainImportRequest,
    address_of,
    check_source,
    secret_of,
)
from services.gateway.imports.domain.responses import (
    ImportedJobResponse,
    ImportedJobsResponse,
    ImportResponse,
    import_response,
)
from services.gateway.jobs.deps import JobDeps, WithJobDeps
from services.gateway.jobs.domain.bodies import JobRequest
from services.gateway.jobs.domain.cost_responses import EstimateResponse
from services.gateway.jobs.submission import Intent
from services.gateway.jobs.submission_routes import Submission, WithSubmission, estimated
from services.gateway.views.tables.imports import IMPORTS, ImportRow
from services.gateway.web.deps import Caller, Deps, Principal, WithDeps
from services.gateway.web.domain.errors import ApiError, invalid
from services.gateway.web.problems import validated
from services.gateway.web.resources import Resource, each
from services.gateway.web.routing import new_router
from services.gateway.web.storage import within

JOBS_MAX: Final = 200  # of one plan; each estimate asks the decider
router = new_router("imports")


def _respond(deps: Deps, row: ImportRow) -> ImportResponse:
    return import_response(row, deps.unseal)


IMPORT_RESOURCE: Final = Resource(
    noun="Import object",
    table=IMPORTS,
    response=ImportResponse,
    respond=each(_respond),
    limit=20,
    limit_max=100,
    param="import_id",
)


@router.post("/v1/imports")
async def create_import(body: ImportRequest, deps: WithDeps, caller: Caller) -> ImportResponse:
    """Read an account of another service, and plan how its models are trained here.

    The key is encrypted with a key of its own, which is destroyed when the import has ended.
    Nothing in the account is changed.
    """
    import_id, key = deps.fresh(IMPORT), secret_of(body)
    check_source(body)
    url = address_of(body, deps.settings.import_urls)
    prices = deployments = None
    if body.prices:
        rows = [price.model_dump(mode="json") for price in body.prices]
        prices = deps.seal.seal(caller.tenant, json.dumps(rows), "detail")
    if body.deployments:
        deployments = deps.seal.seal(caller.tenant, json.dumps(body.deployments), "detail")
    terms = ImportTerms(
        import_id=import_id,
        source=body.source,
        url=deps.seal.seal(caller.tenant, url, "url"),
        key=deps.seal.seal(import_id, key, "authorization"),
        key_id=caller.key_id,
        teacher_budget_micro=body.teacher_budget_micro,
        prices=prices,
        api_version=body.api_version,
        deployments=deployments,
    )
    try:
        await deps.decide(caller, ACCOUNT, StartImport(terms=terms))
    except ApiError as error:
        if error.status < 500:  # it was refused, so nothing will destroy the key later
            deps.seal.destroy(import_id)
        raise
    return await IMPORT_RESOURCE.retrieve(deps, caller.rows, import_id)


IMPORT_RESOURCE.add_list(router, "/v1/imports", "list_imports", "List imports, newest first.")
IMPORT_RESOURCE.add_retrieve(
    router,
    "/v1/imports/{import_id}",
    "retrieve_import",
    "An import. When it has completed, its plan file has a request for each model.",
)


@router.post("/v1/imports/{import_id}/cancel")
async def cancel_import(import_id: str, deps: WithDeps, caller: Caller) -> ImportResponse:
    """End the import, and destroy the key. Files that were uploaded by then stay."""
    row = await IMPORT_RESOURCE.find(deps, caller.rows, import_id)
    if row.result is not None:
        text = f"Cannot cancel an import with status '{row.result.outcome}'."
        raise ApiError(409, errors.ILLEGAL_STATE, text, "import_id")
    result = ImportResult(import_id=row.id, outcome="cancelled")
    await deps.decide(caller, ACCOUNT, EndImport(result=result))
    return await IMPORT_RESOURCE.retrieve(deps, caller.rows, row.id)


@router.post("/v1/fine_tuning/imports/{import_id}/estimate")
async def estimate_import(
    import_id: str, deps: WithJobDeps, submission: WithSubmission
) -> ImportedJobsResponse:
    """Time and price of each job that an import has planned, and of all. No job is created."""
    _, response = await _priced(import_id, deps, submission)
    return response


@router.post("/v1/fine_tuning/imports/{import_id}/jobs")
async def train_import(
    import_id: str, body: TrainImportRequest, deps: WithJobDeps, submission: WithSubmission
) -> ImportedJobsResponse:
    """Submit every job that an import has planned, once, where all together cost no more than the
    budget at most. What is refused has an `error`, and the others go on; the same request again
    submits what is missing.
    """
    requests, response = await _priced(import_id, deps, submission)
    most = response.amount_max_micro
    if most > body.max_amount_micro:
        text = f"All jobs cost up to {most} {response.currency} in millionths; allow that much"
        raise ApiError(400, errors.BUDGET_TOO_SMALL, text, "max_amount_micro")
    data = []
    for job in response.data:
        if job.error is not None:
            data.append(job)
            continue
        intent = Intent(f"{import_id}-{job.source_job}", retried=False)
        try:
            submitted = await submission.submissions.submit(
                submission.caller, requests[job.source_job], intent
            )
        except ApiError as refusal:
            data.append(job.model_copy(update={"error": _reason_of(refusal)}))
        else:
            data.append(job.model_copy(update={"job_id": submitted.row.id}))
    return response.model_copy(update={"data": data})


async def _priced(
    import_id: str, deps: JobDeps, submission: Submission
) -> tuple[dict[str, JobRequest], ImportedJobsResponse]:
    """Requests by the old job, and what they cost. Raises ApiError."""
    _, plan = await read_plan(deps, submission.caller, import_id)
    planned = jobs_of(plan)[::-1]
    requests: dict[str, JobRequest] = {}
    data, currency = [], None
    for job in planned:
        base = job["base"]
        line = ImportedJobResponse(
            source_job=job["job_id"],
            source_model=job["old_model"],
            base=None if base is None else base["id"],
        )
        if job["request"] is None:
            data.append(line.model_copy(update={"error": "; ".join(job["reasons"])}))
            continue
        try:
            request = validated(JobRequest, job["request"])
            estimate = await estimated(request, deps, submission)
        except ApiError as refusal:
            data.append(line.model_copy(update={"error": _reason_of(refusal)}))
            continue
        if not isinstance(estimate, EstimateResponse):
            text = "Its rows are still being checked. Ask again in a moment."
            raise ApiError(409, errors.ILLEGAL_STATE, text, "import_id")
        requests[line.source_job] = request
        currency = currency or estimate.currency
        names = ("amount_micro", "amount_max_micro")
        times = ("expected_duration_seconds", "max_duration_seconds")
        known: dict[str, Any] = {name: getattr(estimate, name) for name in (*names, *times)}
        data.append(line.model_copy(update=known))
    return requests, ImportedJobsResponse(
        import_id=import_id,
        currency=currency,
        amount_micro=sum(job.amount_micro or 0 for job in data),
        amount_max_micro=sum(job.amount_max_micro or 0 for job in data),
        data=data,
    )


def _reason_of(refusal: ApiError) -> str:
    """Return why a job is refused. Raises ApiError where the service cannot say it now."""
    if refusal.status >= 500:
        raise refusal
    return refusal.message


async def read_plan(
    deps: Deps, caller: Principal, import_id: str
) -> tuple[ImportResult, dict[str, Any]]:
    """Return how an import has ended, and its plan. Raises ApiError 404, 409."""
    row = await IMPORT_RESOURCE.find(deps, caller.rows, import_id)
    if row.result is None or row.result.plan_file_id is None:
        text = "It has no plan: wait until it has completed."
        raise ApiError(409, errors.ILLEGAL_STATE, text, "import_id")
    file = await known_file(deps, caller, row.result.plan_file_id)
    content = await within(deps.blobs.get(file.blob, sha256=file.sha256), file.bytes)
    plan: dict[str, Any] = json.loads(content)
    return row.result, plan


def jobs_of(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the jobs of a plan, newest first. Raises ApiError 400 for one with too many."""
    jobs: list[dict[str, Any]] = plan["jobs"]
    if len(jobs) > JOBS_MAX:
        text = (
            f"The plan has {len(jobs)} jobs, and {JOBS_MAX} are the most that are submitted at "
            "once: send the requests of its file one by one."
        )
        raise invalid(text, "import_id")
    return jobs
