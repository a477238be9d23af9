"""Errors of the API: OpenAI's envelope, and one table from codes to HTTP statuses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pydantic import BaseModel

from schemas import errors
from schemas.units import Ms
from services.gateway.web.domain.token_bucket import duration

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

# Codes of deciders' refusals → HTTP statuses. A code that is not here is a bad request.
STATUS_OF: Final[Mapping[str, int]] = {
    errors.INVITATION_REFUSED: 401,
    errors.FORBIDDEN: 403,
    errors.SUSPENDED: 403,
    errors.SENDER_REFUSED: 500,  # of our own services: keys that do not fit together
    errors.OPERATOR_REFUSED: 500,
    errors.NOT_FOUND: 404,
    errors.UNKNOWN_BASE: 404,
    errors.ALREADY_EXISTS: 409,
    errors.ILLEGAL_STATE: 409,
    errors.IDEMPOTENCY_CONFLICT: 409,
    errors.FILE_IN_USE: 409,
    errors.STAGE_CONFLICT: 409,
    errors.BASE_CHANGED: 409,
    errors.LEVEL_TOO_LOW: 409,
    errors.CONCURRENCY_LIMIT: 429,
    errors.QUOTA_EXCEEDED: 429,
    errors.HARD_LIMIT: 429,
    errors.SPEND_CAP: 429,
    errors.BUDGET_EXCEEDED: 429,
    errors.TOO_LARGE: 413,
    # not 400, after which clients such as LlamaIndex wait for the file and try again, for ever
    errors.FILE_REJECTED: 422,
    errors.EXAMPLES: 422,
}
TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
}
# OpenAI's type and code where nothing more may be spent; of jobs the code says which limit it is.
INSUFFICIENT_QUOTA: Final = "insufficient_quota"
SPENT: Final = frozenset({INSUFFICIENT_QUOTA, errors.BUDGET_EXCEEDED, errors.SPEND_CAP})
# Statuses that a retry does not change: a header keeps SDKs from repeating the request.
FINAL: Final = frozenset({409, 429})


class ErrorBody(BaseModel):
    """`param` names the field of the request, `code` does not change between versions."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorEnvelope(BaseModel):
    error: ErrorBody


# not frozen: the standard library sets tracebacks on exceptions as they travel
@dataclass(eq=False)
class ApiError(Exception):
    """An error response. It may be raised anywhere below a route."""

    status: int
    code: str
    message: str
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> ErrorEnvelope:
        kind = TYPES.get(self.status, "invalid_request_error")
        if self.code in SPENT:
            kind = INSUFFICIENT_QUOTA
        return ErrorEnvelope(
            error=ErrorBody(message=self.message, type=kind, param=self.param, code=self.code)
        )

    def all_headers(self) -> dict[str, str]:
        final = {"x-should-retry": "false"} if self.status in FINAL else {}
        return {**final, **self.headers}


@dataclass(eq=False)
class KeyRefused(ApiError):
    """A 401."""

    # tenant, key_id: owner and id of the key that was sent, if it was valid once
    tenant: str = ""
    key_id: str = ""


def refused(code: str, message: str, param: str | None) -> ApiError:
    """The error for a command that its decider has refused."""
    return ApiError(STATUS_OF.get(code, 400), code, message, param)


def invalid(message: str, param: str | None = None, code: str = INVALID) -> ApiError:
    return ApiError(400, code, message, param)


def not_found(kind: str, identifier: str, param: str) -> ApiError:
    """The error for an object that does not exist or belongs to another tenant."""
    return ApiError(404, errors.NOT_FOUND, f"No such {kind}: {identifier}", param)


def above_limit(name: str, limit: int) -> ApiError:
    """The error for one more at a time than the plan's limit of this name allows."""
    message = f"Your plan allows {limit} at a time (`{name}`). Wait until another has ended."
    headers = {"retry-after": str(RETRY_AFTER_S), "x-should-retry": "true"}
    return ApiError(429, errors.QUOTA_EXCEEDED, message, headers=headers)


def too_many_requests(who: str, limit: int, retry_ms: Ms, remedy: str, which: str = "") -> ApiError:
    """The error for one request more than a bucket holds.

    who: and what it may do. remedy: what an operator could give. which: requests are meant
    """
    message = (
        f"Rate limit reached: {who} {limit} requests{which} a minute. Try again in "
        f"{duration(retry_ms)}, or ask the operator for {remedy}."
    )
    headers = {
        "retry-after": str(-(-retry_ms // 1_000)),
        "retry-after-ms": str(retry_ms),
        "x-should-retry": "true",
    }
    return ApiError(429, RATE_LIMIT, message, headers=headers)


def unavailable(what: str, retry_after_s: int = RETRY_AFTER_S) -> ApiError:
    return ApiError(
        503,
        UNAVAILABLE,
        f"{what} is temporarily unavailable. Nothing was changed; try again shortly.",
        headers={"retry-after": str(retry_after_s)},
    )


def not_decided() -> ApiError:
    """The error for a command that was sent but not decided in time."""
    return ApiError(
        503,
        NOT_DECIDED,
        "The request was recorded but not decided in time. It may still take effect: check for its "
        "result before you send it again, or send it again with the same Idempotency-Key.",
        headers={"retry-after": str(RETRY_AFTER_S)},
    )
