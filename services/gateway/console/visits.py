"""One request to the console: its person, its calls of the API, its page."""

import functools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import httpx
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from services.gateway.console.calls import CallRefused, Calls, path_to
from services.gateway.console.sessions import Person, Sessions
from services.gateway.console.words import templates
from services.gateway.web.domain.errors import ApiError
from services.gateway.web.edge import limit_body
from tunery.runtime.telemetry.logs import log_event

LOG: Final = logging.getLogger("tunery.gateway")
ROOT: Final = "/console"
SIGN_IN: Final = f"{ROOT}/sign-in"
COOKIE: Final = "tunery_session"
AWAY: Final = CallRefused(503, "sessions_unavailable", "Sessions cannot be read now. Try again.")
NO_PAGE: Final = CallRefused(404, "not_found", "There is no such page.")
TEMPLATES: Final = templates()
#: pages of the menu besides the jobs: address, name, and the scope that opens it
SECTIONS: Final = (
    (f"{ROOT}/sweeps", "Sweeps", "jobs", "read"),
    (f"{ROOT}/sessions", "Sessions", "jobs", "read"),
    (f"{ROOT}/models", "Models", "models", "read"),
    (f"{ROOT}/playground", "Playground", "chat", "write"),
    (f"{ROOT}/money", "Usage", "billing", "read"),
    (f"{ROOT}/webhooks", "Webhooks", "webhooks", "read"),
    (f"{ROOT}/keys", "Keys", "keys", "read"),
    (f"{ROOT}/operators", "Operators", "operators", "admin"),
)


@dataclass
class Visit:
    """A request of a person who is signed in."""

    request: Request
    person: Person
    api: Calls

    @property
    def is_part(self) -> bool:
        """True if the response replaces a part of the page."""
        return self.request.headers.get("hx-request") == "true"

    def page(self, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        return page(self.request, template, status, visit=self, calls=self.api.requests, **values)

    def part(self, template: str, **values: Any) -> str:
        """Render a part of the page that a stream sends."""
        return bytes(self.page(template, **values).body).decode()

    def named(self, collection: str) -> str:
        """Return the API's path of the item that the page's address names."""
        (name,) = (v for n, v in self.request.path_params.items() if n.endswith("_id"))
        return path_to(collection, name)

    async def form(self) -> dict[str, str]:
        """Return the fields of a form that are not empty. Raises CallRefused."""
        fields = (await form_of(self.request)).multi_items()
        return {name: str(value).strip() for name, value in fields if str(value).strip()}

    def go(self, path: str) -> Response:
        """Send the browser to another page."""
        if self.is_part:
            return Response(headers={"hx-redirect": path})
        return RedirectResponse(path, 303)


Endpoint: TypeAlias = Callable[[Visit], Awaitable[Response]]


def page(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Render a page, or a part of one. It is for one person, so nothing caches it."""
    assets = request.app.state.assets
    values = {
        "visit": None,
        "calls": (),
        "asset": assets.url,
        "is_live": assets.is_complete,
        "sections": SECTIONS,
    } | values
    text = TEMPLATES.get_template(template).render(path=request.url.path, **values)
    return HTMLResponse(text, status, {"cache-control": "no-store"})


def calls_of(request: Request, key: str) -> Calls:
    """Return the API for a request of the console, as called from its browser's address."""
    scope = request.scope
    origin = {name: scope.get(name) for name in ("client", "server", "scheme")}
    client: httpx.AsyncClient = request.app.state.api
    return Calls(client, key, origin)


def cookie_of(request: Request) -> str:
    """Return the name of the session's cookie. Over TLS no other host of the domain can set it, and
    so sign a visitor in as somebody else.
    """
    return f"__Host-{COOKIE}" if request.url.scheme == "https" else COOKIE


async def person_of(request: Request) -> Person | None:
    """Return the person who is signed in. Raises RedisError, OSError while Valkey is away."""
    sessions: Sessions = request.app.state.sessions
    token = request.cookies.get(cookie_of(request))
    return None if token is None else await sessions.find(token)


async def form_of(request: Request) -> FormData:
    """Return the fields of a form. Raises CallRefused 413 for one that is too large.

    A form is read before anything else is known of its sender; files are streamed to the API.
    """
    try:
        limited = Request(request.scope, limit_body(request.scope, request.receive))
        return await limited.form(max_files=0)
    except ApiError as error:
        raise CallRefused(error.status, error.code, error.message) from error


def route(path: str, *methods: str) -> Callable[[Endpoint], Route]:
    """Make a function the endpoint of a page that needs a session."""

    def route_of(endpoint: Endpoint) -> Route:
        @functools.wraps(endpoint)
        async def answer(request: Request) -> Response:
            person = await person_of(request)
            if person is None:
                return _to_sign_in(request)
            visit = Visit(request, person, calls_of(request, person.key))
            try:
                return await endpoint(visit)
            except CallRefused as refusal:
                if refusal.status == 401:  # revoked or expired since the sign-in
                    await request.app.state.sessions.end(request.cookies[cookie_of(request)])
                    return _to_sign_in(request)
                return problem(request, refusal, visit=visit, calls=visit.api.requests)

        return Route(ROOT + path, answer, methods=list(methods) or ["GET"])

    return route_of


def _to_sign_in(request: Request) -> Response:
    """Redirect to the form for a key, and back to the page; a change is not repeated."""
    is_part = request.headers.get("hx-request") == "true"
    address = SIGN_IN + str(httpx.URL("", params={"next": _shown(request, is_part=is_part)}))
    if is_part:
        return Response(status_code=401, headers={"hx-redirect": address})
    return RedirectResponse(address, 303)


def _shown(request: Request, *, is_part: bool = False) -> str:
    """Return path and query of the page that the browser shows or would show, of ours alone."""
    if is_part:
        address = request.headers.get("hx-current-url", "")
    else:
        is_page = request.method == "GET"
        address = str(request.url) if is_page else request.headers.get("referer", "")
    parts = urlsplit(address)
    path = parts.path if parts.path.startswith(f"{ROOT}/") else ROOT
    return f"{path}?{parts.query}" if parts.query else path


async def refused(request: Request, error: Any) -> Response:
    """Handle a refusal of a page that needs no session."""
    return problem(request, error)


async def unavailable(request: Request, error: Any) -> Response:
    """Handle errors of Valkey, which has the sessions."""
    log_event(LOG, logging.WARNING, "console.sessions_unavailable", error)
    return problem(request, AWAY)


def problem(request: Request, refusal: CallRefused, **values: Any) -> Response:
    """Render the API's error as a page, or above the page that the browser has."""
    if request.headers.get("hx-request") != "true":
        values |= {"problem": refusal, "again": _shown(request), "is_form": request.method != "GET"}
        return page(request, "problem.html", refusal.status, **values)
    shown = page(request, "problem_part.html", refusal.status, problem=refusal, **values)
    shown.headers.update({"hx-retarget": "#problem", "hx-reswap": "innerHTML"})
    return shown
