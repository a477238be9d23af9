"""Spans of what follows from a request, from HTTP to the last effect, sent by OTLP.

Off unless OTEL_EXPORTER_OTLP_ENDPOINT (or ..._TRACES_ENDPOINT) is set; that and other variables of
OpenTelemetry's SDK mean what its documentation says: samplers, headers, batches, but not limits of
a span's attributes. The gateway's span of a request is the parent of all others, or a child of the
client's `traceparent`. What no request leads to, such as ticks, has no spans. Attributes are ids
and names of types; texts of tenants are never among them.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from schemas.units import Ms
from tunery.runtime.telemetry.trail import Trail, trail_context

if TYPE_CHECKING:
    from tunery.runtime.telemetry.otlp import Kind, SpanSender

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
DISABLED: Final = "OTEL_SDK_DISABLED"
LAST_MS_MAX: Final[Ms] = 500  # for the last spans of a process that ends
NS_PER_MS: Final = 1_000_000


class _Traces:
    """Sender of this process's spans; None: tracing is off."""

    sender: "SpanSender | None" = None


_TRACES: Final = _Traces()


def start_traces(service: str) -> None:
    """Begin to make spans, if an endpoint is given.

    service: `service.name` of the resource.
    """
    is_off = os.environ.get(DISABLED, "").lower() == "true"
    if is_off or not any(os.environ.get(name) for name in ENDPOINTS):
        return
    from tunery.runtime.telemetry.otlp import SpanSender

    _TRACES.sender = SpanSender(service)


def stop_traces() -> None:
    """Send the last spans; give up after LAST_MS_MAX, for an endpoint that is away."""
    sender, _TRACES.sender = _TRACES.sender, None
    if sender is not None:
        closing = threading.Thread(target=sender.close, daemon=True)
        closing.start()
        closing.join(LAST_MS_MAX / 1_000)


@contextmanager
def traced(
    trail: Trail, name: str, kind: "Kind", *, is_root: bool = False, **attributes: object
) -> Iterator[None]:
    """Work within follows from this request, and is a span; an error is noted in it.

    is_root: whether it is its own trace where the client sent no `traceparent`. One that the
    sampler leaves out is not begun: what follows from it carries nothing.
    """
    sender, parent = _TRACES.sender, trail.traceparent
    if sender is None or not (sender.is_wanted(parent) or (is_root and parent is None)):
        with trail_context(trail):
            yield
        return
    ids, begun_ns = sender.new_ids(parent, name), time.time_ns()
    failure = None
    if parent is not None or ids.is_sampled:
        trail = trail._replace(traceparent=ids.traceparent)
    with trail_context(trail):
        try:
            yield
        except BaseException as error:
            failure = type(error).__name__
            raise
        finally:
            attributes["request_id"] = trail.request_id
            sender.end(ids, name, kind, begun_ns, failure, attributes)


def note_span(
    trail: Trail, name: str, kind: "Kind", begun_ms: Ms, failure: str | None, **attributes: object
) -> None:
    """A span that ends now and began at a time since 1970. failure: a code, None: it succeeded."""
    sender = _TRACES.sender
    if sender is not None and sender.is_wanted(trail.traceparent):
        ids = sender.new_ids(trail.traceparent, name)
        attributes["request_id"] = trail.request_id
        sender.end(ids, name, kind, begun_ms * NS_PER_MS, failure, attributes)
