"""The outermost layer of the API: request ids, keys, size of bodies, metrics."""

import asyncio
import hashlib
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Final, TypeAlias

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from schemas.units import Ms
from services.gateway.web.commands import count_early
from services.gateway.web.connections import network_of
from services.gateway.web.deps import Deps, Principal, require
from services.gateway.web.domain.errors import (
    BODY_TOO_LARGE,
    ApiError,
    KeyRefused,
    invalid,
    too_many_requests,
)
from services.gateway.web.domain.scopes import SDK_PREFIX, scope_of
from services.gateway.web.domain.token_bucket import Allowance, answer, duration, take
from services.gateway.web.lingering import BODY, linger
from services.gateway.web.metrics import count_request
from services.gateway.web.problems import error_of, error_response, fault
from tunery.platform.fair_places import FairPlaces
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.telemetry.traces import traced
from tunery.runtime.telemetry.trail import Trail, readable_traceparent

# Limits requests without a valid key, by the address of their sender.

PER_MINUTE: Final = 300  # refused requests of one address
REMEMBERED_MAX: Final = 10_000  # addresses, and keys; the least recently used is forgotten


class WrongKeys:
    """Counts requests that were refused with 401, for each address.

    An address above the limit gets no further lookups of keys, which cost two queries each. A key
    that was valid before is not held up by others of the same address: behind one address may be
    a whole office. `now_us`: any clock that never goes back.
    """

    def __init__(self, now_us: Callable[[], int] = lambda: time.monotonic_ns() // 1_000) -> None:
        self._now_us = now_us
        self._full_at_us: OrderedDict[str, int] = OrderedDict()
        self._valid: OrderedDict[bytes, None] = OrderedDict()

    def limit(self, address: str, authorization: str | None) -> Allowance | None:
        """The exhausted allowance when this request must not be looked at; otherwise None."""
        full_at_us = self._full_at_us.get(network_of(address), 0)
        late_ms: Ms = take(full_at_us, self._now_us(), PER_MINUTE)[1].retry_ms
        if late_ms == 0 or _digest(authorization) in self._valid:
            return None
        return answer(PER_MINUTE, max(0, full_at_us - self._now_us()), late_ms * 1_000)

    def refused(self, address: str) -> None:
        network = network_of(address)
        full_at_us = self._full_at_us.pop(network, 0)
        self._full_at_us[network] = take(full_at_us, self._now_us(), PER_MINUTE)[0]
        if len(self._full_at_us) > REMEMBERED_MAX:
            self._full_at_us.popitem(last=False)

    def accepted(self, authorization: str | None) -> None:
        digest = _digest(authorization)
        self._valid.pop(digest, None)
        self._valid[digest] = None
        if len(self._valid) > REMEMBERED_MAX:
            self._valid.popitem(last=False)


def _digest(authorization: str | None) -> bytes:
    return hashlib.sha256((authorization or "").encode("utf-8", "surrogateescape")).digest()


LOG: Final = logging.getLogger("tunery.gateway")
BODY_BYTES_MAX: Final = 1024 * 1024
OPEN: Final = frozenset({"/healthz", "/readyz", "/openapi.json"})
METHODS: Final = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
#: headers of every answer that sets no others: none of them is a page that may load something
SAFE_HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
}
STREAMED: Final = re.compile(
    "/v1/files|/v1/uploads/[^/]+/parts|/v1/models/import|/v1/gate/benchmarks/[^/]+"
)  # their routes measure the body
#: the caller sends a token instead of a key: a node that joins, a URL of a file
BY_TOKEN: Final = (
    ("POST", re.compile("/v1/nodes/[^/]+/enrol")),
    ("GET", re.compile("/v1/downloads/[^/]+")),
)
SDK_KEY, SDK_KEY_PREFIX = "x-api-key", "tml-"  # of the Tinker SDK
UPLOADS_AT_ONCE, UPLOADS_OF_TENANT = 64, 4  # requests with bytes of files that are received
STRANGERS_WAIT_S: Final = 1.0  # for the answer that an address sends too much without a key
API_VERSION: Final = "2020-10-01"


#: returns the caller for a value of the header `authorization`
Authenticate: TypeAlias = Callable[[Deps, str | None], Awaitable[Principal]]


#: notes a request: its scope, the answer's status, the request's id, the first bytes of the body
Observe: TypeAlias = Callable[[Scope, int, str, bytes], None]

#: counts a request: its method, route, status and seconds
CountRequest: TypeAlias = Callable[[str, str, str, float], None]


class Edge:
    """ASGI application around the routes."""

    def __init__(
        self,
        app: ASGIApp,
        deps: Deps,
        authenticate: Authenticate,
        observe: Observe,
        count: CountRequest = count_request,
    ) -> None:
        self._app, self._deps, self._authenticate = app, deps, authenticate
        self._observe, self._count = observe, count
        self._wrong_keys = WrongKeys()
        self._uploads = FairPlaces(UPLOADS_AT_ONCE, UPLOADS_OF_TENANT)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"] != "/":  # no redirect, whose URL would be made of the header `Host`
            scope = {**scope, "path": scope["path"].rstrip("/") or "/"}
        receive, send = linger(scope, receive, send)
        begun = time.perf_counter()
        request_id = self._deps.fresh("req_")
        status, is_observed = 500, False

        def observe(body: bytes) -> None:
            nonlocal is_observed
            if not is_observed:
                is_observed = True
                self._observe(scope, status, request_id, body)

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == BODY:
                observe(message.get("body", b""))
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = request_id
                headers["openai-version"] = API_VERSION
                for name, value in SAFE_HEADERS.items():
                    headers.setdefault(name, value)
                if (principal := scope.get("state", {}).get("principal")) is not None:
                    headers["openai-organization"] = principal.tenant
                state = scope.get("state", {})
                for name, value in {**state.get("rate", {}), **state.get("notes", {})}.items():
                    headers[name] = value
                elapsed_ms = round(1_000 * (time.perf_counter() - begun))
                headers["openai-processing-ms"] = str(elapsed_ms)
            await send(message)

        traceparent = readable_traceparent(Headers(scope=scope).get("traceparent"))
        try:
            trail, name = Trail(request_id, traceparent), f"HTTP {_method(scope)}"
            with traced(trail, name, "server", is_root=scope["path"] not in OPEN):
                await self._through(scope, receive, answer, request_id)
        finally:
            observe(b"")
            seconds = time.perf_counter() - begun
            self._count(_method(scope), _route(scope), str(status), seconds)

    async def _through(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        started = ended = False

        async def noting(message: Message) -> None:
            nonlocal started, ended
            if message["type"] == "http.response.start":
                started = True
                if _is_by_token(scope) and 400 <= message["status"] < 500:
                    self._wrong_keys.refused(_address(scope))
            await send(message)
            ended = started and not message.get("more_body", message["type"] != BODY)

        try:
            await self._admit(scope, request_id)
            async with self._turn(scope):
                limited = receive if _is_upload(scope) else limit_body(scope, receive)
                await self._app(scope, limited, noting)
        except Exception as error:
            failure = error_of(error)
            if failure is None:
                log_event(LOG, logging.ERROR, "request.failed", error)
                failure = fault(request_id)
            if not started:
                await error_response(failure)(scope, receive, send)
            elif not ended:  # breaks the connection, so that the client notices the missing rest
                raise

    def _turn(self, scope: Scope) -> AbstractAsyncContextManager[None]:
        """Wait for a place where bytes are received, so that uploads of one tenant do not take the
        time of all; any other request continues at once.
        """
        if not _is_upload(scope):
            return nullcontext()
        return self._uploads.take(scope["state"]["principal"].tenant)

    async def _admit(self, scope: Scope, request_id: str) -> None:
        """Raises ApiError 400, 401, 403, 429; StoreUnavailable."""
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            raise invalid("The URL contains a NUL character.")
        if scope["path"] in OPEN:
            return
        if _is_by_token(scope):
            await self._limit_address(scope, None)
            return
        principal = await self._identify(scope)
        state["principal"] = principal
        per_minute = principal.per_minute or self._deps.settings.requests_per_minute
        allowance = await self._deps.rates.take(principal.key_id, per_minute)
        state["rate"] = rate_headers(allowance)
        if not allowance.allowed:
            who, remedy = "this key may send", "a key with a higher limit"
            raise too_many_requests(who, allowance.limit, allowance.retry_ms, remedy)
        require(principal, scope_of(scope["method"], scope["path"]))
        if _is_upload(scope):  # what is refused is not received
            await count_early()

    async def _identify(self, scope: Scope) -> Principal:
        """Raises ApiError 401, 429; StoreUnavailable."""
        authorization = _authorization(scope)
        await self._limit_address(scope, authorization)
        try:
            principal = await self._authenticate(self._deps, authorization)
        except KeyRefused as error:
            self._wrong_keys.refused(_address(scope))
            scope["state"]["refused_key"] = error.tenant, error.key_id
            raise
        self._wrong_keys.accepted(authorization)
        return principal

    async def _limit_address(self, scope: Scope, authorization: str | None) -> None:
        """Raises ApiError 429, but late: who waits for an answer sends nothing meanwhile."""
        limit = self._wrong_keys.limit(_address(scope), authorization)
        if limit is not None:
            await asyncio.sleep(STRANGERS_WAIT_S)
            who, which = "one address may send", " without a valid key"
            raise too_many_requests(who, limit.limit, limit.retry_ms, "a key", which)


def _authorization(scope: Scope) -> str | None:
    """The key of a request. The Tinker SDK has a header of its own, and a prefix for keys."""
    headers = Headers(scope=scope)
    key = headers.get(SDK_KEY)
    if key is None or not scope["path"].startswith(SDK_PREFIX):
        return headers.get("authorization")
    return f"Bearer {key.removeprefix(SDK_KEY_PREFIX)}"


def _address(scope: Scope) -> str:
    return scope["client"][0] if scope.get("client") else ""


def _is_by_token(scope: Scope) -> bool:
    return any(
        scope["method"] == method and path.fullmatch(scope["path"]) is not None
        for method, path in BY_TOKEN
    )


def rate_headers(allowance: Allowance) -> dict[str, str]:
    return {
        "x-ratelimit-limit-requests": str(allowance.limit),
        "x-ratelimit-remaining-requests": str(allowance.remaining),
        "x-ratelimit-reset-requests": duration(allowance.reset_ms),
    }


def limit_body(scope: Scope, receive: Receive) -> Receive:
    """Raises ApiError 413 as soon as a body is above BODY_BYTES_MAX."""
    allowance = 0
    too_large = ApiError(
        413, BODY_TOO_LARGE, f"The request body exceeds the limit of {BODY_BYTES_MAX} bytes."
    )
    declared = Headers(scope=scope).get("content-length", "")
    if declared.isdigit() and int(declared) > BODY_BYTES_MAX:
        raise too_large

    async def counting() -> Message:
        nonlocal allowance
        message = await receive()
        allowance += len(message.get("body", b""))
        if allowance > BODY_BYTES_MAX:
            raise too_large
        return message

    return counting


def _is_upload(scope: Scope) -> bool:
    return scope["method"] == "POST" and STREAMED.fullmatch(scope["path"]) is not None


def _method(scope: Scope) -> str:
    """Whatever a client sends as its method must not become a series of its own."""
    return scope["method"] if scope["method"] in METHODS else "other"


def _route(scope: Scope) -> str:
    """The route's template: identifiers must not become labels of metrics."""
    route: Any = scope.get("route")
    return str(getattr(route, "path", "unmatched"))
