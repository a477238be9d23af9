"""The whole API as one ASGI application."""

from collections.abc import Mapping
from typing import Final

from fastapi import FastAPI
from starlette.types import ASGIApp

from services.gateway import health
from services.gateway.accounts import budget_routes as budgets
from services.gateway.accounts import integration_routes as integrations
from services.gateway.accounts import key_routes as keys
from services.gateway.accounts import price_routes as prices
from services.gateway.accounts import tenant_routes as tenants
from services.gateway.accounts import webhook_routes as webhooks
from services.gateway.accounts.auth import authenticate
from services.gateway.accounts.request_quotas import counting
from services.gateway.audit import routes as audit
from services.gateway.audit.observing import Observer
from services.gateway.batches import routes as batches
from services.gateway.billing import contract_routes as contracts
from services.gateway.billing import invoice_routes as invoices
from services.gateway.billing import metric_routes as tenant_metrics
from services.gateway.billing import usage_routes as usage
from services.gateway.chat import completion_routes as completions
from services.gateway.chat import embedding_routes as embeddings
from services.gateway.chat import response_routes as responses
from services.gateway.chat import routes as chat
from services.gateway.deployments import routes as deployments
from services.gateway.files import base_folder_routes as base_folders
from services.gateway.files import dataset_routes as datasets
from services.gateway.files import routes as files
from services.gateway.files import storage_routes as storage
from services.gateway.files import upload_routes as uploads
from services.gateway.imports import report_routes as import_reports
from services.gateway.imports import routes as imports
from services.gateway.jobs import checkpoint_routes as checkpoints
from services.gateway.jobs import enrolment_routes as enrolments
from services.gateway.jobs import evaluation_routes as evaluations
from services.gateway.jobs import event_routes as events
from services.gateway.jobs import gate_report_routes as gate_reports
from services.gateway.jobs import grader_routes as graders
from services.gateway.jobs import node_routes as nodes
from services.gateway.jobs import plain_routes as plain
from services.gateway.jobs import plan_routes as plans
from services.gateway.jobs import preview_routes as preview
from services.gateway.jobs import queue_routes as queues
from services.gateway.jobs import recipes
from services.gateway.jobs import routes as jobs
from services.gateway.jobs import submission_routes as submit
from services.gateway.jobs import sweep_routes as sweeps
from services.gateway.jobs.deps import JobDeps
from services.gateway.jobs.submission import Submissions
from services.gateway.models import base_file_routes as base_files
from services.gateway.models import benchmark_routes as benchmarks
from services.gateway.models import download_routes as downloads
from services.gateway.models import gate_routes as gate
from services.gateway.models import release_routes as releases
from services.gateway.models import routes as models
from services.gateway.serving_pools import routes as serving_pools
from services.gateway.sessions import routes as sdk
from services.gateway.sessions import session_routes as sessions
from services.gateway.web import problems
from services.gateway.web.edge import CountRequest, Edge
from services.gateway.web.metrics import count_request
from services.gateway.web.shown_names import ShownNames

# Messages for URLs of OpenAI's API that do not exist here: what to use instead.

SERVING: Final = (
    "Models answer POST /v1/chat/completions, /v1/completions, /v1/responses and /v1/embeddings. "
    "GET /v1/models/{id}/adapter returns the adapter of a model, for another inference server, "
    "such as vLLM."
)
TEXT_ONLY: Final = "Tunery trains models of text, and has no other part of OpenAI's API."
OTHERS: Final = (
    *("assistants", "audio", "containers", "conversations", "images", "moderations", "realtime"),
    *("threads", "vector_stores", "videos"),
)
#: beginning of a path → message; the first match counts
ALTERNATIVES: Final[Mapping[str, str]] = {
    "/v1/chat/": SERVING,
    "/v1/responses/": ("Answers are not stored. Keep the answer of POST /v1/responses."),
    "/v1/fine-tunes": "OpenAI replaced that API in 2023. Use /v1/fine_tuning/jobs.",
    "/v1/evals": (
        "Custom evaluations are not supported. Every job is compared with its base model: see "
        "`gate` of GET /v1/fine_tuning/jobs/{id}, and GET /v1/fine_tuning/jobs/{id}/answers."
    ),
    "/v1/organization/": (
        "Organizations are tenants here. Operators manage them with /v1/tenants, tenants manage "
        "their API keys with /v1/keys; GET /v1/fine_tuning/jobs/{id}/cost returns a job's cost."
    ),
    **{f"/v1/{name}": TEXT_ONLY for name in OTHERS},
}


TITLE: Final = "Tunery"
VERSION: Final = "1"
ABOUT: Final = (
    "OpenAI's fine-tuning API with additional fields and routes. Lists are paged by the id of the "
    "last item. All errors have the same envelope."
)
#: `submit` before `jobs`, whose {job_id} would match `estimate`
MODULES: Final = (
    files,
    datasets,
    uploads,
    storage,
    submit,
    plans,
    sweeps,
    preview,
    graders,
    evaluations,
    gate_reports,
    recipes,
    jobs,
    events,
    checkpoints,
    queues,
    plain,
    base_folders,
    base_files,
    benchmarks,
    gate,
    releases,
    deployments,
    serving_pools,
    models,
    chat,
    completions,
    embeddings,
    responses,
    batches,
    imports,
    import_reports,
    webhooks,
    integrations,
    keys,
    budgets,
    tenants,
    contracts,
    prices,
    sessions,
    sdk,
    nodes,
    enrolments,
    usage,
    invoices,
    tenant_metrics,
    audit,
    health,
)


def create_app(deps: JobDeps, count: CountRequest = count_request) -> ASGIApp:
    app = routes()
    app.state.deps = deps
    app.state.submissions = Submissions(deps)
    app.state.readiness = health.Readiness(deps)
    app.state.tenant_figures = tenant_metrics.KeptFigures(deps)
    observer = Observer(deps.audit, deps.clock, app.router.routes)
    return Edge(ShownNames(app, deps.seal), deps, counting(authenticate), observer, count)


def routes() -> FastAPI:
    """The application with all routes and its OpenAPI document, without dependencies."""
    app = FastAPI(
        title=TITLE,
        version=VERSION,
        description=ABOUT,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # `Edge` takes both forms
    )
    problems.install(app, ALTERNATIVES, submit.MORE_PROBLEMS)
    for module in MODULES:
        app.router.routes.extend(module.router.routes)
    for router in (enrolments.open_router, downloads.router, health.operators):
        app.router.routes.extend(router.routes)
    return app
