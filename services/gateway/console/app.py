"""`/console`: the pages as one application, in front of the API that they call."""

import hashlib
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from redis.exceptions import RedisError
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.gateway.console.calls import CallRefused, client_of
from services.gateway.console.compare import page as compare
from services.gateway.console.job import page as job
from services.gateway.console.jobs import page as jobs
from services.gateway.console.keys import page as keys
from services.gateway.console.loops import page as loops
from services.gateway.console.models import page as models
from services.gateway.console.money import page as money
from services.gateway.console.new_job import page as new_job
from services.gateway.console.operators import page as operators
from services.gateway.console.playground import page as playground
from services.gateway.console.sessions import KeptHere, KeptInValkey, Sessions
from services.gateway.console.sign_in import page as sign_in
from services.gateway.console.sweeps import page as sweeps
from services.gateway.console.visits import (
    NO_PAGE,
    ROOT,
    Visit,
    problem,
    refused,
    route,
    unavailable,
)
from services.gateway.console.webhooks import page as webhooks
from services.gateway.settings import GatewaySettings

# Scripts and styles: our own, and those that `make setup` installs by version and hash.

OWN: Final = Path(__file__).with_name("static")
#: name → its path among the installed packages
INSTALLED: Final = {
    "htmx.js": "htmx.org/dist/htmx.min.js",
    "sse.js": "htmx.org/dist/ext/hx-sse.min.js",
    "uplot.js": "uplot/dist/uPlot.iife.min.js",
    "uplot.css": "uplot/dist/uPlot.min.css",
}
TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
#: an address has the hash of its file, so a browser's copy is never old
KEEP: Final = {"cache-control": "public, max-age=31536000, immutable"}


class Assets:
    """Files by name, read once. installed: the folder of packages; None: there is none."""

    def __init__(self, installed: Path | None) -> None:
        self._files = {own.name: own.read_bytes() for own in sorted(OWN.iterdir())}
        self.is_complete = installed is not None and installed.is_dir()
        if installed is not None and self.is_complete:
            for name, path in INSTALLED.items():
                self._files[name] = (installed / path).read_bytes()
        self._digests = {
            name: hashlib.sha256(body).hexdigest()[:16] for name, body in self._files.items()
        }

    def url(self, name: str) -> str:
        return f"/console/assets/{self._digests[name]}/{name}"

    def answer(self, request: Request) -> Response:
        name = request.path_params["name"]
        if self._digests.get(name) != request.path_params["digest"]:
            return Response(status_code=404)
        return Response(self._files[name], media_type=TYPES[Path(name).suffix], headers=KEEP)


#: scripts, styles and requests of this origin alone, and none written into a page
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SAFETY: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
READING: Final = frozenset({"GET", "HEAD"})


class Console:
    """ASGI application: `/console` in front of `api`, which gets everything else."""

    def __init__(self, api: ASGIApp, settings: GatewaySettings, valkey_url: str | None) -> None:
        self._api = api
        self.routes = [
            Route(f"{ROOT}/assets/{{digest}}/{{name}}", _asset),
            *sign_in.ROUTES,
            *jobs.ROUTES,
            *new_job.ROUTES,
            *job.ROUTES,
            *playground.ROUTES,
            *compare.ROUTES,
            *keys.ROUTES,
            *loops.ROUTES,
            *models.ROUTES,
            *money.ROUTES,
            *operators.ROUTES,
            *sweeps.ROUTES,
            *webhooks.ROUTES,
            _nowhere,
        ]
        pages = Starlette(
            routes=self.routes,
            exception_handlers={
                404: _not_found,
                405: _not_found,
                CallRefused: refused,
                RedisError: unavailable,
                OSError: unavailable,
            },
        )
        pages.state.assets = Assets(settings.console_dir)
        kept = KeptHere() if valkey_url is None else KeptInValkey(valkey_url)
        pages.state.sessions = Sessions(kept)
        pages.state.api = client_of(api)
        self._pages = GZipMiddleware(pages)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] != "http" or not (path == ROOT or path.startswith(f"{ROOT}/")):
            await self._api(scope, receive, send)
            return
        scope = {**scope, "path": path.rstrip("/")}

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SAFETY.items():
                    headers[name] = value
            await send(message)

        if not is_own(scope):
            text = "This request did not come from a page of the console."
            await PlainTextResponse(text, 403)(scope, receive, answer)
            return
        await self._pages(scope, receive, answer)


@route("/{path:path}")
async def _nowhere(visit: Visit) -> Response:
    """Refuse any other address, below the menu of the pages that there are."""
    raise NO_PAGE


def is_own(scope: Scope) -> bool:
    """Return whether a request only reads, or comes from a page of this origin.

    Browsers send the header Sec-Fetch-Site, or Origin where the connection has no TLS, and no page
    can forge them. A page of another origin cannot send a key either; but a browser adds the
    credentials of a proxy's Basic authentication by itself.
    """
    headers = Headers(scope=scope)
    if scope["method"] in READING or headers.get("authorization", "").startswith("Bearer "):
        return True
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = urlsplit(headers.get("origin", ""))
    return bool(origin.netloc) and origin.netloc == headers.get("host")


def _asset(request: Request) -> Response:
    assets: Assets = request.app.state.assets
    return assets.answer(request)


async def _not_found(request: Request, error: Any) -> Response:
    status = getattr(error, "status_code", NO_PAGE.status)
    return problem(request, CallRefused(status, NO_PAGE.code, NO_PAGE.message))
