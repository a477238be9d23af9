"""Everything that can be raised below a route, as an answer in OpenAI's envelope."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Match

from schemas import errors
from services.gateway.jobs.resolve import METHODS
from services.gateway.web.errors import (
    INVALID,
    METHOD_NOT_ALLOWED,
    ApiError,
    envelope,
    invalid,
    unavailable,
)
from tunery.runtime.blobs.abstract import BlobError, BlobsUnavailable
from tunery.runtime.bus.abstract import BusError, TooLarge
from tunery.runtime.seal.abstract import KeyDestroyed
from tunery.runtime.store.abstract import StoreUnavailable

PLACES: Final = ("body", "query", "path", "header")
PROBLEMS_MAX: Final = 20
METHODS_KNOWN: Final = ("DELETE", "GET", "PATCH", "POST", "PUT")


class ErrorBody(BaseModel):
    """`param` names the field of the request, `code` does not change between versions."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorEnvelope(BaseModel):
    error: ErrorBody


ERRORS: Final[Mapping[int | str, dict[str, Any]]] = {
    status: {"model": ErrorEnvelope, "description": text}
    for status, text in (("4XX", "the request's fault"), ("5XX", "ours; `retry-after` says when"))
}
# OpenAI's, and not here: what there is instead. The first prefix that fits.
SERVING: Final = (
    "Tunery trains models and serves none. GET /v1/models/{id}/adapter gives the adapter of yours, "
    "for a server such as vLLM."
)
ELSEWHERE: Final[Mapping[str, str]] = {
    "/v1/chat/": SERVING,
    "/v1/completions": SERVING,
    "/v1/responses": SERVING,
    "/v1/embeddings": SERVING,
    "/v1/batches": SERVING,
    "/v1/fine_tuning/alpha/graders": (
        "Graders belong to reinforcement fine-tuning, which is not here. The methods there are: "
        f"{', '.join(METHODS)}."
    ),
    "/v1/fine-tunes": "That API was replaced in 2023. Use /v1/fine_tuning/jobs.",
    "/v1/evals": (
        "Evaluations of one's own are not here. Every job is compared with its base model: `gate` "
        "of GET /v1/fine_tuning/jobs/{id}, and GET /v1/fine_tuning/jobs/{id}/answers."
    ),
    "/v1/organization/": (
        "Organizations are tenants here: /v1/tenants for operators, /v1/keys for one's own keys; "
        "what a job cost is at GET /v1/fine_tuning/jobs/{id}/cost."
    ),
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
    """None for what is a fault of ours."""
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


def install(app: FastAPI) -> None:
    for kind in HANDLED:
        app.add_exception_handler(kind, _answer)
    app.add_exception_handler(Exception, _broken)


def fault(request_id: str) -> ApiError:
    """Ours, and nobody foresaw it."""
    return ApiError(500, errors.INTERNAL, f"Internal error; name {request_id} to the operator.")


async def _broken(request: Request, _: Exception) -> JSONResponse:
    """The edge logs it: it is raised again once this is sent."""
    told = fault(request.state.request_id)
    return JSONResponse(told.body(), told.status)


async def _answer(request: Request, error: Exception) -> JSONResponse:
    told = _unrouted(request, error) or error_of(error)
    if told is None:
        raise error
    body = envelope(told.status, told.code, told.message, told.param)
    return JSONResponse(body, told.status, headers=told.all_headers())


def _invalid(found: Sequence[Mapping[str, Any]]) -> ApiError:
    """Every problem in one message; `param` names the first. Values are not repeated."""
    if any(one["type"] == "json_invalid" for one in found):
        return invalid("The body is not valid JSON.")
    told: dict[str, str] = {}
    for one in found:
        path = [str(part) for part in one["loc"] if part not in PLACES]
        name = ".".join(part for part in path if not part.startswith(("function-", "constrained")))
        told.setdefault(name or "body", _text(one))
    shown = [f"{name}: {text}" for name, text in list(told.items())[:PROBLEMS_MAX]]
    lead = f"{len(told)} problems: " if len(told) > 1 else ""
    first = next(iter(told))
    return invalid(lead + "; ".join(shown), None if first == "body" else first, INVALID)


def _text(problem: Mapping[str, Any]) -> str:
    match problem["type"]:
        case "missing":
            return "is required"
        case "extra_forbidden":
            return "is not known here; remove it or correct its name"
        case "model_attributes_type" | "dict_type" if problem["loc"] == ("body",):
            return "send a JSON object, with content-type: application/json"
        case _:
            return str(problem["msg"])


def _unrouted(request: Request, error: Exception) -> ApiError | None:
    """404 and 405 of the router: no route below was asked."""
    if not isinstance(error, HTTPException):
        return None
    path = request.url.path
    if error.status_code == 404:
        known = (text for prefix, text in ELSEWHERE.items() if path.startswith(prefix))
        text = next(known, "The API begins with /v1; see /openapi.json.")
        return ApiError(404, "unknown_url", f"There is no such URL here. {text}")
    if error.status_code == 405:
        taken = ", ".join(method for method in METHODS_KNOWN if _takes(request, method))
        text = f"{path} does not take {request.method}; it takes {taken}."
        return ApiError(405, METHOD_NOT_ALLOWED, text, headers={"allow": taken})
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
