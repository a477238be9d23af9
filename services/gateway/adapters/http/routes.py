"""The whole API as one ASGI application."""

from typing import Final

from fastapi import FastAPI
from starlette.types import ASGIApp

from services.gateway.adapters.http import (
    events,
    files,
    health,
    jobs,
    models,
    plain,
    preview,
    problems,
    submit,
    tenants,
    uploads,
    webhooks,
)
from services.gateway.adapters.http.deps import Deps
from services.gateway.adapters.http.edge import Edge

TITLE: Final = "Tunery"
VERSION: Final = "1"


def create_app(deps: Deps) -> ASGIApp:
    app = FastAPI(title=TITLE, version=VERSION, docs_url=None, redoc_url=None)
    app.state.deps = deps
    problems.install(app)
    # submit before jobs: `estimate` is a name of its own, not the id of a job
    for module in (
        files,
        uploads,
        submit,
        preview,
        jobs,
        events,
        plain,
        models,
        webhooks,
        tenants,
        health,
    ):
        app.include_router(module.router)
    return Edge(app, deps)
