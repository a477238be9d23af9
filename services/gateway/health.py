"""`/healthz`, `/readyz`: for probes, without a key. `/metrics`: for operators."""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from schemas.topics import JOB
from schemas.units import Ms
from services.gateway.web.deps import Admin, Deps, WithDeps
from services.gateway.web.domain.errors import RETRY_AFTER_S
from services.gateway.web.routing import new_router
from tunery.runtime.journal import alarm

CHECK_MS_MAX: Final[Ms] = 2_000
NEVER_THERE: Final = "t/-/files/ready"  # a key of no tenant, below what the gateway may read
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
        self._built = False
        self._behind: Mapping[str, str | None] = {}

    async def reachable(self) -> Mapping[str, bool]:
        """Return whether `database`, `log` and `storage` can be used, and whether the rows of
        `views` were made of the whole log, at least once since this process started.
        """
        async with self._lock:
            clock = self._deps.clock
            if clock.monotonic_ms() - self._checked_ms >= CHECKED_MS:
                deps = self._deps
                names = ("database", "log", "storage")
                checks = (
                    _within(self._look()),
                    _within(deps.log.bounds(JOB.commands.name, 0)),
                    _within(deps.blobs.exists(NEVER_THERE)),
                )
                answering = dict(zip(names, await asyncio.gather(*checks), strict=True))
                if answering["database"]:
                    self._built |= all(self._behind.values())
                self._reachable = {**answering, "views": self._built}
                self._checked_ms = clock.monotonic_ms()
            return self._reachable

    async def _look(self) -> None:
        self._behind = await self._deps.views.behind()

    def stopped(self) -> list[str]:
        """Return the partitions whose rows need an operator, as `stream/partition`."""
        return [partition for partition, why in self._behind.items() if why is not None]


@router.get("/healthz")
async def health() -> dict[str, str]:
    """Answers while the process runs."""
    return {"status": "ok"}


@router.get("/readyz")
async def readiness(request: Request, deps: WithDeps) -> JSONResponse:
    """Report whether requests can be served: 200, or a 503 that names what is `away`: a server, or
    the rows of `views`, which are still made from the log.

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
    stopped = dict(alarm.stopped_partitions())
    if viewed := readiness.stopped():
        stopped["projector views"] = viewed
    if stopped:
        body["partitions"] = stopped
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
