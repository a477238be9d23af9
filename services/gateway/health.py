"""`/healthz`, `/readyz`: for probes, without a key. `/metrics`: for operators."""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from schemas.topics import JOB
from schemas.units import Ms
from services.gateway.views.tables.accounts import TENANTS
from services.gateway.web.deps import Admin, Deps, WithDeps
from services.gateway.web.domain.errors import RETRY_AFTER_S
from services.gateway.web.routing import new_router
from tunery.runtime.journal import alarm

CHECK_MS_MAX: Final[Ms] = 2_000
CHECKED_MS: Final[Ms] = 1_000  # how long the result of a check is reused
router = new_router("operations", needs_key=False)
operators = new_router("operations")


class Readiness:
    """Reachability of the servers. The endpoint is public, so they are checked once a second at
    most.
    """

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._lock = asyncio.Lock()
        self._checked_ms: Ms = -CHECKED_MS
        self._reachable: Mapping[str, bool] = {}

    async def reachable(self) -> Mapping[str, bool]:
        """Return the reachability of `database`, `log` and `storage`."""
        async with self._lock:
            clock = self._deps.clock
            if clock.monotonic_ms() - self._checked_ms >= CHECKED_MS:
                deps = self._deps
                names = ("database", "log", "storage")
                checks = (
                    _within(deps.views.first(TENANTS, {"id": ""})),
                    _within(deps.log.bounds(JOB.commands.name, 0)),
                    _within(deps.blobs.exists("t/-/ready")),
                )
                self._reachable = dict(zip(names, await asyncio.gather(*checks), strict=True))
                self._checked_ms = clock.monotonic_ms()
            return self._reachable


@router.get("/healthz")
async def health() -> dict[str, str]:
    """Answers while the process runs."""
    return {"status": "ok"}


@router.get("/readyz")
async def readiness(request: Request, deps: WithDeps) -> JSONResponse:
    """Report whether requests can be served: 200, or a 503 that names the server which is away.

    `hosts` names the parts of this process that have ended or hung and are being restarted.
    `partitions` names those that need an operator: their tenants are not served, all others are,
    so the answer is 200 with the status `degraded`, and no gateway is taken out of service.
    `unconfined` says which walls around processes that read tenants' files are missing, and why.
    """
    readiness: Readiness = request.app.state.readiness
    reachable = await readiness.reachable()
    body: dict[str, Any] = {name: "ok" if ok else "away" for name, ok in reachable.items()}
    if deps.health.failing:
        body["hosts"] = dict(deps.health.failing)
    if stopped := alarm.stopped_partitions():
        body["partitions"] = dict(stopped)
    if deps.health.unconfined:
        body["unconfined"] = dict(deps.health.unconfined)
    if all(reachable.values()) and not deps.health.failing:
        return JSONResponse({"status": "degraded" if stopped else "ready", **body})
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


@operators.get("/metrics")
async def metrics(_: Admin) -> Response:
    """Figures for Prometheus. Without a key they are on the port TUNERY_METRICS_PORT, locally."""
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
