"""Routes of jobs get the dependencies of the app that they are part of."""

import httpx
from fastapi import FastAPI

from services.gateway.jobs.deps import WithJobDeps


async def test_a_route_of_jobs_gets_the_dependencies_of_its_app() -> None:
    app, received = FastAPI(), list[object]()
    app.state.deps = object()

    @app.get("/")
    def show(deps: WithJobDeps) -> None:
        received.append(deps)

    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://api"
    ) as api:
        assert (await api.get("/")).is_success
    assert received == [app.state.deps]
