"""Values of a route's dependencies in an app."""

from typing import Any

import httpx
from fastapi import FastAPI


async def received(dependency: Any, deps: object) -> object:
    """What a route with this dependency gets, in an app that has `deps`."""
    app, received_deps = FastAPI(), list[object]()
    app.state.deps = deps

    def show(deps: object) -> None:
        received_deps.append(deps)

    show.__annotations__["deps"] = dependency
    app.get("/")(show)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as api:
        assert (await api.get("/")).is_success
    (only,) = received_deps
    return only
