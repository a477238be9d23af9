"""Turns every exception that is raised below a route into a response in OpenAI's envelope."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from schemas import errors
from services.gateway.web.domain.errors import (
    INVALID,
    METHOD_NOT_ALLOWED,
    ApiError,
    ErrorEnvelope,
    invalid,
    unavailable,
)
from tunery.platform.seal.abstract import KeyDestroyed, KeyUnavailable, RootRefused
from tunery.runtime.blobs.abstract import BlobError, BlobsUnavailable
from tunery.runtime.bus.abstract import BusError, TooLarge
from tunery.runtime.store.abstract import StoreUnavailable

AnyBody = TypeVar("AnyBody", bound=BaseModel)
LOCATIONS: Final = ("body", "query", "path", "header")
PROBLEMS_MAX: Final = 20
METHODS_KNOWN: Final = ("DELETE", "GET", "PATCH", "POST", "PUT")


# what is wrong, by its kind: the sentence and the name of its figure
LENGTHS: Final[Mapping[str, tuple[str, str]]] = {
    "string_too_long": ("must have at most {} characters", "max_length"),
    "string_too_short": ("must have at least {} characters", "min_length"),
    "too_long": ("must have at most {} entries", "max_length"),
    "too_short": ("must have at least {} entries", "min_length"),
}
BOUNDS: Final[Mapping[str, str]] = {
    "greater_than": "above",
    "greater_than_equal": "at least",
    "less_than": "below",
    "less_than_equal": "at most",
}
TYPES: Final[Mapping[str, str]] = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a number that is not infinite",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}
#: (request, body, fields of a wrong form) → more problems: a field, and what is wrong with it
MoreProblems: TypeAlias = Callable[
    [Request, dict[str, Any], set[str]], Awaitable[Sequence[tuple[str, str]]]
]
NO_MORE: Final[Mapping[str, MoreProblems]] = {}
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
    RootRefused,
    KeyUnavailable,
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
        case KeyUnavailable():
            return unavailable("What the key of this tenant is kept in")
        case RootRefused():
            message = "The root key of this tenant does not open its data; its owner may say why."
            return ApiError(403, "root_key_refused", message)
        case _:
            return None


def install(
    app: FastAPI, alternatives: Mapping[str, str], more: Mapping[str, MoreProblems] = NO_MORE
) -> None:
    """Install the handlers.

    alternatives: beginning of an unknown path → what to use instead.
    more: path → what else is wrong with a body of which some fields have a wrong form.
    """
    app.state.alternatives = alternatives
    app.state.more_problems = more
    for kind in HANDLED:
        app.add_exception_handler(kind, _answer)
    app.add_exception_handler(Exception, _broken)


def fault(request_id: str) -> ApiError:
    """The 500 response to an unexpected exception."""
    message = f"Internal server error. Give the request id {request_id} to the operator."
    return ApiError(500, errors.INTERNAL, message)


async def _broken(request: Request, _: Exception) -> Response:
    """The response to an unexpected exception, which `web.edge` logs."""
    return error_response(fault(request.state.request_id))


async def _answer(request: Request, error: Exception) -> Response:
    answer = _unrouted(request, error) or await _malformed(request, error) or error_of(error)
    if answer is None:
        raise error
    return error_response(answer)


def error_response(error: ApiError) -> Response:
    """The response. What a caller sent and cannot be written as UTF-8 is shown as `?`."""
    text = json.dumps(error.body().model_dump(), ensure_ascii=False, separators=(",", ":"))
    body = text.encode(errors="replace")
    return Response(body, error.status, error.all_headers(), "application/json")


async def _malformed(request: Request, error: Exception) -> ApiError | None:
    """The response to a body of a wrong form, with what else is wrong with it."""
    if not isinstance(error, RequestValidationError):
        return None
    more = request.app.state.more_problems.get(request.url.path)
    if more is None or not isinstance(error.body, dict):
        return None
    wrong = {str(problem["loc"][1]) for problem in error.errors() if len(problem["loc"]) > 1}
    return _invalid(error.errors(), await more(request, error.body, wrong))


def validated(kind: type[AnyBody], value: Any) -> AnyBody:
    """Return a body that came in a file, as its route would take it. Raises ApiError 400."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise _invalid(error.errors()) from error


def _invalid(
    problems: Sequence[Mapping[str, Any]], more: Sequence[tuple[str, str]] = ()
) -> ApiError:
    """One error for all problems of a request; `param` names the first. No values are quoted."""
    if any(problem["type"] == "json_invalid" for problem in problems):
        return invalid("The body is not valid JSON.")
    texts: dict[str, str] = {}
    for problem in problems:
        path = [str(part) for part in problem["loc"] if part not in LOCATIONS]
        name = ".".join(part for part in path if not part.startswith(("function-", "constrained")))
        texts.setdefault(name or "body", problem_words(problem))
    for param, words in more:
        texts.setdefault(param, words)
    shown = [f"{name}: {text}" for name, text in list(texts.items())[:PROBLEMS_MAX]]
    lead = f"{len(texts)} problems: " if len(texts) > 1 else ""
    first = next(iter(texts))
    return invalid(lead + "; ".join(shown), None if first == "body" else first, INVALID)


def problem_words(problem: Mapping[str, Any]) -> str:
    """Describe a validation error of a field as a clause."""
    match problem["type"]:
        case "missing":
            return "is required"
        case "extra_forbidden":
            return "is not a known field; remove it or correct its name"
        case "model_attributes_type" | "dict_type" if problem["loc"] == ("body",):
            return "send a JSON object, with content-type: application/json"
        case "string_too_short" | "too_short" if problem["ctx"]["min_length"] == 1:
            return "must not be empty"
        case kind if kind in LENGTHS:
            form, most = LENGTHS[kind]
            return form.format(problem["ctx"][most])
        case kind if kind in BOUNDS:
            return f"must be {BOUNDS[kind]} {next(iter(problem['ctx'].values()))}"
        case "literal_error" | "enum":
            return f"must be {problem['ctx']['expected'].replace(' or ', ', or ')}"
        case kind if kind in TYPES:
            return f"must be {TYPES[kind]}"
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
        begins = "" if path.startswith("/v1/") else "paths begin with /v1; "
        text = next(texts, f"Check the URL for typos: {begins}/openapi.json lists all of them.")
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
