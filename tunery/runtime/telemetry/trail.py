"""The request that work follows from: its id and its trace, from HTTP to the last effect.

A request's handler opens a `trail_context`; so does whatever continues its work: a reaction, an
effect, a lease. Commands that are sent within carry it on (`Sender`), log lines name it.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple

REQUEST: Final = "req_"  # how ids of requests begin; commands without a request have other ids
#: W3C Trace Context, version 00: version, trace, parent, flags
TRACEPARENT: Final = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class Trail(NamedTuple):
    """Correlation of an envelope with the request that led to it."""

    # id of the request, or of the first command where no request led to it
    correlation: str | None = None
    traceparent: str | None = None  # header from the client; None: it sent none that is valid

    @property
    def request_id(self) -> str | None:
        """The id that the client got as `x-request-id`; None: no request led to this."""
        correlation = self.correlation
        return correlation if correlation and correlation.startswith(REQUEST) else None

    @property
    def trace_id(self) -> str | None:
        """The trace of the client; None where it sent no valid `traceparent`."""
        matched = TRACEPARENT.fullmatch(self.traceparent or "")
        return None if matched is None else matched[1]

    def fields(self) -> dict[str, str]:
        """`request_id` and `trace_id` of a log line, where they are known."""
        named = {"request_id": self.request_id, "trace_id": self.trace_id}
        return {name: value for name, value in named.items() if value is not None}


NO_TRAIL: Final = Trail()
_TRAIL: Final[ContextVar[Trail]] = ContextVar("trail", default=NO_TRAIL)


def current_trail() -> Trail:
    """Return the correlation that the current task runs under."""
    return _TRAIL.get()


@contextmanager
def trail_context(trail: Trail) -> Iterator[None]:
    """Work within, also in tasks started within, follows from this request."""
    token = _TRAIL.set(trail)
    try:
        yield
    finally:
        _TRAIL.reset(token)


def readable_traceparent(text: str | None) -> str | None:
    """A client's header `traceparent` if it is valid, else None, as the standard asks."""
    return text if text is not None and TRACEPARENT.fullmatch(text) else None
