"""Sign in: a key is checked by the API once, and kept for the browser's session."""

from typing import Any, Final

from redis.exceptions import RedisError
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from services.gateway.console.calls import CallRefused, refusal_of
from services.gateway.console.sessions import CODE_S, SESSION_S, Person, Sessions
from services.gateway.console.visits import (
    AWAY,
    ROOT,
    SIGN_IN,
    calls_of,
    cookie_of,
    form_of,
    page,
    person_of,
)

TEMPLATE: Final = "sign_in/sign_in.html"
CONFIRM: Final = "sign_in/confirm.html"
STALE: Final = "This link was used already or is too old. Run tunery console again, or sign in."


async def show(request: Request) -> Response:
    """Show the form; with a code of `tunery console`, begin a session.

    A code in a link of another site is not redeemed: it would sign the visitor in as the owner of
    that code, who could then read the visitor's uploads. Over plain HTTP to another machine a
    browser does not say where a link comes from: the visitor is asked.
    """
    code, next_path = request.query_params.get("code"), request.query_params.get("next", ROOT)
    if code is None:
        return page(request, TEMPLATE, next=next_path, failure=None)
    site = request.headers.get("sec-fetch-site")
    if site not in (None, "none", "same-origin"):
        return page(request, TEMPLATE, 403, next=ROOT, failure=STALE)
    if site is None and (person := await request.app.state.sessions.find(code)) is not None:
        return page(request, CONFIRM, code=code, person=person)
    return await _redeem(request, code)


async def _redeem(request: Request, code: str) -> Response:
    person = await request.app.state.sessions.end(code)
    if person is None:
        return page(request, TEMPLATE, 403, next=ROOT, failure=STALE)
    return await _signed_in(request, person, ROOT)


async def sign_in(request: Request) -> Response:
    form = await form_of(request)
    if code := form.get("code"):
        return await _redeem(request, str(code))
    key, next_path = str(form.get("key", "")).strip(), str(form.get("next", ROOT))
    try:
        person = await checked(request, key)
    except CallRefused as refusal:
        values = {"next": next_path, "failure": refusal.message}
        return page(request, TEMPLATE, refusal.status, **values)
    return await _signed_in(request, person, next_path)


async def new_code(request: Request) -> Response:
    """Make a one-time code for the key in the header `authorization`, for `tunery console`."""
    key = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
    try:
        person = await checked(request, key)
        code = await request.app.state.sessions.begin(person, CODE_S)
    except (CallRefused, RedisError, OSError) as failure:
        refusal = failure if isinstance(failure, CallRefused) else AWAY
        error = {"message": refusal.message, "code": refusal.code, "type": "", "param": None}
        return JSONResponse({"error": error}, refusal.status)
    return JSONResponse({"path": f"{SIGN_IN}?code={code}", "expires_in_seconds": CODE_S})


async def sign_out(request: Request) -> Response:
    await request.app.state.sessions.end(request.cookies.get(cookie_of(request), ""))
    answer = RedirectResponse(SIGN_IN, 303)
    answer.delete_cookie(cookie_of(request), **_kept(request))
    return answer


async def checked(request: Request, key: str) -> Person:
    """Return the owner of a key, which may lack the right to read itself. Raises CallRefused."""
    if not key.isascii() or not key.isprintable():
        raise CallRefused(401, "invalid_api_key", "The API key is not valid.")
    response = await calls_of(request, key).send("GET", "/v1/keys/current")
    tenant = response.headers.get("openai-organization", "")
    if response.is_success:
        key_fields = response.json()
        scopes = frozenset(key_fields["scopes"])
        return Person(key, tenant, key_fields.get("name") or key_fields["id"], scopes)
    if response.status_code not in (403, 404):
        raise refusal_of(response)
    return Person(key, tenant, f"…{key[-4:]}")


async def _signed_in(request: Request, person: Person, next_path: str) -> Response:
    """Begin a session with a new token, and end the one that the browser had."""
    sessions: Sessions = request.app.state.sessions
    if await person_of(request) is not None:
        await sessions.end(request.cookies[cookie_of(request)])
    token = await sessions.begin(person)
    # a path of ours alone: `//host` and `/\host` are other sites
    is_ours = next_path == ROOT or next_path.startswith(f"{ROOT}/")
    answer = RedirectResponse(next_path if is_ours else ROOT, 303)
    answer.set_cookie(cookie_of(request), token, SESSION_S, **_kept(request))
    return answer


def _kept(request: Request) -> Any:
    """Return where a browser keeps the cookie: its name over TLS asks for the path "/"."""
    is_secure = request.url.scheme == "https"
    path = "/" if is_secure else ROOT
    return {"path": path, "secure": is_secure, "httponly": True, "samesite": "lax"}


ROUTES: Final = (
    Route(SIGN_IN, show, methods=["GET"]),
    Route(SIGN_IN, sign_in, methods=["POST"]),
    Route(f"{ROOT}/codes", new_code, methods=["POST"]),
    Route(f"{ROOT}/sign-out", sign_out, methods=["POST"]),
)
