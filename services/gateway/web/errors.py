"""Errors as the API tells them: OpenAI's envelope, and one table from codes to HTTP statuses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from schemas import errors

UNAUTHORIZED: Final = "invalid_api_key"
FORBIDDEN: Final = errors.FORBIDDEN
INVALID: Final = "invalid_request"
UNSUPPORTED: Final = "unsupported"
BODY_TOO_LARGE: Final = "request_too_large"
FILE_TOO_LARGE: Final = "file_too_large"
INCOMPLETE: Final = "incomplete_upload"
METHOD_NOT_ALLOWED: Final = "method_not_allowed"
RATE_LIMIT: Final = "rate_limit_exceeded"
UNAVAILABLE: Final = "service_unavailable"
NOT_DECIDED: Final = "not_decided_yet"
RETRY_AFTER_S: Final = 2

# What deciders refuse, and how HTTP says it. A code that is not here is a bad request.
STATUS_OF: Final[Mapping[str, int]] = {
    errors.FORBIDDEN: 403,
    errors.NOT_FOUND: 404,
    errors.UNKNOWN_BASE: 404,
    errors.ALREADY_EXISTS: 409,
    errors.ILLEGAL_STATE: 409,
    errors.IDEMPOTENCY_CONFLICT: 409,
    errors.FILE_IN_USE: 409,
    errors.STAGE_CONFLICT: 409,
    errors.BASE_CHANGED: 409,
    errors.CONCURRENCY_LIMIT: 429,
    errors.HARD_LIMIT: 429,
    errors.SPEND_CAP: 429,
    errors.TOO_LARGE: 413,
}
TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
}
# The same call can never succeed as things are: an SDK that retries would only cost time.
FINAL: Final = frozenset({409, 429})


# not frozen: the standard library sets tracebacks on exceptions as they travel
@dataclass(eq=False)
class ApiError(Exception):
    """An answer that is an error. Raised anywhere below a route, told by one handler."""

    status: int
    code: str
    message: str
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        return envelope(self.status, self.code, self.message, self.param)

    def all_headers(self) -> dict[str, str]:
        final = {"x-should-retry": "false"} if self.status in FINAL else {}
        return {**final, **self.headers}


def envelope(status: int, code: str, message: str, param: str | None = None) -> dict[str, Any]:
    kind = TYPES.get(status, "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def refused(code: str, message: str, param: str | None) -> ApiError:
    """A decider's rejection."""
    return ApiError(STATUS_OF.get(code, 400), code, message, param)


def invalid(message: str, param: str | None = None, code: str = INVALID) -> ApiError:
    return ApiError(400, code, message, param)


def not_found(what: str, identifier: str, param: str) -> ApiError:
    """The same answer for what does not exist and for what belongs to somebody else."""
    return ApiError(404, errors.NOT_FOUND, f"No such {what}: {identifier}", param)


def unavailable(what: str, retry_after_s: int = RETRY_AFTER_S) -> ApiError:
    return ApiError(
        503,
        UNAVAILABLE,
        f"{what} cannot be reached at the moment. Nothing was changed; try again shortly.",
        headers={"retry-after": str(retry_after_s)},
    )


def not_decided() -> ApiError:
    """Sent, and no answer in time: it may still take effect."""
    return ApiError(
        503,
        NOT_DECIDED,
        "The request was recorded and is not decided yet. It may still take effect: look before "
        "you repeat it, or repeat it with the same Idempotency-Key.",
        headers={"retry-after": str(RETRY_AFTER_S)},
    )
