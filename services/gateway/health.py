"""`/healthz`, `/readyz`, `/metrics`: for operators and probes. They need no key."""

import asyncio
from collections.abc import Awaitable
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import JSONResponse, Response

from schemas.topics import JOB
from schemas.units import Ms
from services.gateway.accounts.tables import TENANTS
from services.gateway.web.deps import WithDeps
from services.gateway.web.errors import RETRY_AFTER_S
from services.gateway.web.routing import new_router

CHECK_MS_MAX: Final[Ms] = 2_000
router = new_router("operations", needs_key=False)


@router.get("/healthz")
async def health() -> dict[str, str]:
    """Answers while the process runs."""
    return {"status": "ok"}


@router.get("/readyz")
async def readiness(deps: WithDeps) -> JSONResponse:
    """Whether requests can be served: 200, or a 503 that names the server which is away.

    `hosts` names the parts of this process that have ended or hung and are being restarted.
    """
    names = ("database", "log", "storage")
    checks = (
        _within(deps.views.first(TENANTS, {"id": ""})),
        _within(deps.log.bounds(JOB.commands.name, 0)),
        _within(deps.blobs.exists("t/-/ready")),
    )
    reachable = dict(zip(names, await asyncio.gather(*checks), strict=True))
    body: dict[str, Any] = {name: "ok" if ok else "away" for name, ok in reachable.items()}
    if deps.health.failing:
        body["hosts"] = dict(deps.health.failing)
    if all(reachable.values()) and not deps.health.failing:
        return JSONResponse({"status": "ready", **body})
    return JSONResponse(
        {"status": "not ready", **body}, 503, headers={"retry-after": str(RETRY_AFTER_S)}
    )


async def _within(check: Awaitable[Any]) -> bool:
    try:
        async with asyncio.timeout(CHECK_MS_MAX / 1_000):
            await check
    except Exception:  # any error means that the server cannot be used
        return False
    return True


@router.get("/metrics")
async def metrics() -> Response:
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
