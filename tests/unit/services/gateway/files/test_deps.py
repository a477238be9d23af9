"""Routes of files get the dependencies of the app that they are part of."""

import httpx
from fastapi import FastAPI

from services.gateway.files.deps import WithFileDeps


async def test_a_route_of_files_gets_the_dependencies_of_its_app() -> None:
    app, received = FastAPI(), list[object]()
    app.state.deps = object()

    @app.get("/")
    def show(deps: WithFileDeps) -> None:
        received.append(deps)

    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://api"
    ) as api:
        assert (await api.get("/")).is_success
    assert received == [app.state.deps]
