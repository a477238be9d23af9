"""402, after which the Tinker SDK waits and asks again: there is no credit, or a cap is reached."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from schemas import errors
from services.gateway.web.domain.errors import ApiError

# Refusals that credit or a higher cap ends; elsewhere in the API they are 429.
WITHOUT_CREDIT: Final = frozenset({errors.BUDGET_EXCEEDED, errors.SPEND_CAP, errors.HARD_LIMIT})


@contextmanager
def paused_without_credit() -> Iterator[None]:
    """Answer refusals for want of credit with 402. Raises ApiError."""
    try:
        yield
    except ApiError as refusal:
        if refusal.code in WITHOUT_CREDIT:
            raise paused(refusal.message, refusal.code) from refusal
        raise


def paused(message: str, code: str = errors.BUDGET_EXCEEDED) -> ApiError:
    """Return the error after which the SDK waits: it shows the message, and asks again."""
    return ApiError(402, code, message)
