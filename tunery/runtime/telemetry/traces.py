"""Spans of what follows from a request, from HTTP to the last effect, sent by OTLP.

Off unless OTEL_EXPORTER_OTLP_ENDPOINT (or ..._TRACES_ENDPOINT) is set; that and all other variables
of OpenTelemetry's SDK mean what its documentation says: samplers, headers, limits of batches. The
gateway's span of a request is the parent of all others, or a child of the client's `traceparent`.
What no request leads to, such as ticks, has no spans. Attributes are ids and names of types; texts
of tenants are never among them.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from schemas.units import Ms
from tunery.runtime.telemetry.trail import Trail, trail_context

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
SAMPLER: Final = "OTEL_TRACES_SAMPLER"
BY_PARENT: Final = "parentbased_"  # how names of samplers begin that do as the parent says
SAMPLED: Final = 1  # the bit of a `traceparent`'s flags
LAST_MS_MAX: Final[Ms] = 500  # for the last spans of a process that ends
PREFIX: Final = "tunery."
NS_PER_MS: Final = 1_000_000
Kind: TypeAlias = Literal["server", "client", "producer", "consumer", "internal"]


class _Traces:
    """What makes spans in this process; None: nothing does. by_parent: where its parent has one."""

    provider: "TracerProvider | None" = None
    tracer: "Tracer | None" = None
    by_parent = True


_TRACES: Final = _Traces()


def start_traces(service: str) -> None:
    """Begin to make spans, if an endpoint is given.

    service: `service.name` of the resource.
    """
    if not any(os.environ.get(name) for name in ENDPOINTS):
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.name": f"tunery-{service}", "service.namespace": "tunery"})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    _TRACES.provider, _TRACES.tracer = provider, provider.get_tracer("tunery")
    _TRACES.by_parent = os.environ.get(SAMPLER, BY_PARENT).startswith(BY_PARENT)


def stop_traces() -> None:
    """Send the last spans; give up after LAST_MS_MAX, for an endpoint that is away."""
    provider, _TRACES.provider, _TRACES.tracer = _TRACES.provider, None, None
    if provider is not None:
        sending = threading.Thread(target=provider.shutdown, daemon=True)
        sending.start()
        sending.join(LAST_MS_MAX / 1_000)


@contextmanager
def traced(
    trail: Trail, name: str, kind: Kind, *, is_root: bool = False, **attributes: object
) -> Iterator[None]:
    """Work within follows from this request, and is a span; an error is noted in it.

    is_root: whether it is a trace of its own where the client sent no `traceparent`.
    """
    tracer = _TRACES.tracer
    if tracer is None or not (_is_wanted(trail) or (is_root and not trail.traceparent)):
        with trail_context(trail):
            yield
        return
    span = _start(tracer, trail, name, kind, attributes, None)
    with trail_context(trail._replace(traceparent=_traceparent(span))):
        try:
            yield
        except BaseException as error:
            _fail(span, type(error).__name__)
            raise
        finally:
            span.end()


def note_span(
    trail: Trail, name: str, kind: Kind, begun_ms: Ms, failure: str | None, **attributes: object
) -> None:
    """A span that ends now and began at a time since 1970. failure: a code, None: it succeeded."""
    tracer = _TRACES.tracer
    if tracer is None or not _is_wanted(trail):
        return
    span = _start(tracer, trail, name, kind, attributes, begun_ms * NS_PER_MS)
    if failure is not None:
        _fail(span, failure)
    span.end()


def _is_wanted(trail: Trail) -> bool:
    """Whether a span follows from this. The SDK would say no to a parent without one, slowly."""
    parent = trail.traceparent
    return parent is not None and (not _TRACES.by_parent or bool(int(parent[-2:], 16) & SAMPLED))


def _start(
    tracer: "Tracer",
    trail: Trail,
    name: str,
    kind: Kind,
    attributes: dict[str, object],
    begun_ns: int | None,
) -> "Span":
    from opentelemetry.trace import SpanKind

    return tracer.start_span(
        name,
        context=_parent(trail.traceparent),
        kind=SpanKind[kind.upper()],
        attributes=_named({"request_id": trail.request_id, **attributes}),
        start_time=begun_ns,
    )


def _parent(traceparent: str | None) -> "Context":
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {} if traceparent is None else {"traceparent": traceparent}
    return TraceContextTextMapPropagator().extract(carrier, context=Context())


def _named(attributes: dict[str, object]) -> dict[str, Any]:
    """Attributes with a prefix; those that are not known are left out."""
    return {
        PREFIX + name: value if isinstance(value, bool | int | float) else str(value)
        for name, value in attributes.items()
        if value is not None
    }


def _traceparent(span: "Span") -> str:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def _fail(span: "Span", what: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR, what))
