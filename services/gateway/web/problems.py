"""Turns every exception that is raised below a route into a response in OpenAI's envelope."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Match

from schemas import errors
from services.gateway.web.errors import (
    INVALID,
    METHOD_NOT_ALLOWED,
    ApiError,
    ErrorEnvelope,
    invalid,
    unavailable,
)
from tunery.runtime.blobs.abstract import BlobError, BlobsUnavailable
from tunery.runtime.bus.abstract import BusError, TooLarge
from tunery.runtime.seal.abstract import KeyDestroyed
from tunery.runtime.store.abstract import StoreUnavailable

LOCATIONS: Final = ("body", "query", "path", "header")
PROBLEMS_MAX: Final = 20
METHODS_KNOWN: Final = ("DELETE", "GET", "PATCH", "POST", "PUT")


ERRORS: Final[Mapping[int | str, dict[str, Any]]] = {
    status: {"model": ErrorEnvelope, "description": text}
    for status, text in (("4XX", "the request's fault"), ("5XX", "ours; `retry-after` says when"))
}
HANDLED: Final = (
    ApiError,
    RequestValidationError,
    HTTPException,
    StoreUnavailable,
    BlobError,
    BusError,
    KeyDestroyed,
)


def error_of(error: Exception) -> ApiError | None:
    """The response to an exception; None for an unexpected one."""
    match error:
        case ApiError():
            return error
        case RequestValidationError():
            return _invalid(error.errors())
        case HTTPException():
            return _http(error)
        case StoreUnavailable():
            return unavailable("The database")
        case BlobsUnavailable():
            return unavailable("Object storage")
        case TooLarge():
            return ApiError(413, errors.TOO_LARGE, "The request is too large to be recorded.")
        case BusError():
            return unavailable("The log")
        case KeyDestroyed():
            return ApiError(403, "tenant_erased", "The data of this tenant was erased.")
        case _:
            return None


def install(app: FastAPI, alternatives: Mapping[str, str]) -> None:
    """Install the handlers. alternatives: beginning of an unknown path → what to use instead."""
    app.state.alternatives = alternatives
    for kind in HANDLED:
        app.add_exception_handler(kind, _answer)
    app.add_exception_handler(Exception, _broken)


def fault(request_id: str) -> ApiError:
    """The 500 response to an unexpected exception."""
    message = f"Internal server error. Give the request id {request_id} to the operator."
    return ApiError(500, errors.INTERNAL, message)


async def _broken(request: Request, _: Exception) -> JSONResponse:
    """The response to an unexpected exception, which `web.edge` logs."""
    return error_response(fault(request.state.request_id))


async def _answer(request: Request, error: Exception) -> JSONResponse:
    answer = _unrouted(request, error) or error_of(error)
    if answer is None:
        raise error
    return error_response(answer)


def error_response(error: ApiError) -> JSONResponse:
    return JSONResponse(error.body().model_dump(), error.status, headers=error.all_headers())


def _invalid(problems: Sequence[Mapping[str, Any]]) -> ApiError:
    """One error for all problems of a request; `param` names the first. No values are quoted."""
    if any(problem["type"] == "json_invalid" for problem in problems):
        return invalid("The body is not valid JSON.")
    texts: dict[str, str] = {}
    for problem in problems:
        path = [str(part) for part in problem["loc"] if part not in LOCATIONS]
        name = ".".join(part for part in path if not part.startswith(("function-", "constrained")))
        texts.setdefault(name or "body", _text(problem))
    shown = [f"{name}: {text}" for name, text in list(texts.items())[:PROBLEMS_MAX]]
    lead = f"{len(texts)} problems: " if len(texts) > 1 else ""
    first = next(iter(texts))
    return invalid(lead + "; ".join(shown), None if first == "body" else first, INVALID)


def _text(problem: Mapping[str, Any]) -> str:
    match problem["type"]:
        case "missing":
            return "is required"
        case "extra_forbidden":
            return "is not a known field; remove it or correct its name"
        case "model_attributes_type" | "dict_type" if problem["loc"] == ("body",):
            return "send a JSON object, with content-type: application/json"
        case _:
            return str(problem["msg"])


def _unrouted(request: Request, error: Exception) -> ApiError | None:
    """The response to a URL or method that no route has."""
    if not isinstance(error, HTTPException):
        return None
    path = request.url.path
    if error.status_code == 404:
        alternatives: Mapping[str, str] = request.app.state.alternatives
        texts = (text for prefix, text in alternatives.items() if path.startswith(prefix))
        text = next(texts, "Check the URL for typos: paths begin with /v1; see /openapi.json.")
        message = f"Unknown request URL: {request.method} {path}. {text}"
        return ApiError(404, "unknown_url", message)
    if error.status_code == 405:
        allowed = ", ".join(method for method in METHODS_KNOWN if _takes(request, method))
        text = f"Method {request.method} is not allowed for {path}. Allowed: {allowed}."
        return ApiError(405, METHOD_NOT_ALLOWED, text, headers={"allow": allowed})
    return None


def _takes(request: Request, method: str) -> bool:
    scope = {**request.scope, "method": method}
    return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)


def _http(error: HTTPException) -> ApiError:
    if isinstance(error.__cause__, ApiError):
        return error.__cause__  # raised while the body came in; FastAPI made a plain 400 of it
    if error.status_code >= 500:
        return unavailable("The service")
    return ApiError(error.status_code, INVALID, str(error.detail))
