"""Spans on their way to an OTLP endpoint: a light record of each, encoded with its batch.

A span of OpenTelemetry's SDK took 75 microseconds to make and 50 to encode, more than the decision
that it describes; a record takes 4, and 14 in the thread that sends it. Samplers, batches, retries,
addresses, headers and certificates are the SDK's.
"""

import os
import time
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Literal, NamedTuple, TypeAlias, cast

import msgspec
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, SpanFlags, Status
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.sampling import Decision, ParentBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, TraceFlags

from tunery.runtime.telemetry.trail import TRACEPARENT

SCOPE: Final = "tunery"
PREFIX: Final = "tunery."  # of names of attributes
Kind: TypeAlias = Literal["server", "client", "producer", "consumer", "internal"]
KINDS: Final[dict[Kind, int]] = {
    "server": Span.SPAN_KIND_SERVER,
    "client": Span.SPAN_KIND_CLIENT,
    "producer": Span.SPAN_KIND_PRODUCER,
    "consumer": Span.SPAN_KIND_CONSUMER,
    "internal": Span.SPAN_KIND_INTERNAL,
}
SAMPLED_DIGITS: Final = frozenset("13579bdf")  # last ones of a `traceparent` that is sampled
VALUE_FIELDS: Final[dict[type, str]] = {
    str: "string_value",
    bool: "bool_value",
    int: "int_value",
    float: "double_value",
}
INT_BITS_MAX: Final = 63
ANY: Final = SpanContext(trace_id=1, span_id=1, is_remote=False, trace_flags=TraceFlags(1))


class SpanIds(NamedTuple):
    """Ids of a span, in hexadecimal digits as in a `traceparent`."""

    trace_id: str
    span_id: str
    parent_id: str  # empty: a root span
    flags: int

    @property
    def is_sampled(self) -> bool:
        return bool(self.flags & TraceFlags.SAMPLED)

    @property
    def traceparent(self) -> str:
        """For what follows from the span."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"


class SpanRecord(msgspec.Struct, frozen=True, gc=False):
    """A span that ended, and is sampled."""

    context: ClassVar[SpanContext] = ANY  # the SDK's batches ask it whether the span is sampled
    ids: SpanIds
    name: str
    kind: Kind
    begun_ns: int
    ended_ns: int
    failure: str | None  # a code or the type of an error; None: it succeeded
    attributes: dict[str, object]  # those that are None are left out


class SpanSender:
    """Makes ids of spans, and sends those that are sampled in batches, in a thread."""

    def __init__(self, service: str) -> None:
        resource = Resource.create(
            {"service.name": f"tunery-{service}", "service.namespace": "tunery"}
        )
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._batches = BatchSpanProcessor(SpanExporter(resource))
        self._provider.add_span_processor(self._batches)
        self._by_parent = isinstance(self._provider.sampler, ParentBased)

    def is_wanted(self, traceparent: str | None) -> bool:
        """Return whether spans under this parent are recorded; False for a malformed one."""
        return (
            traceparent is not None
            and (not self._by_parent or traceparent[-1:] in SAMPLED_DIGITS)
            and TRACEPARENT.fullmatch(traceparent) is not None
        )

    def new_ids(self, traceparent: str | None, name: str) -> SpanIds:
        """Ids of a span that follows from what is wanted; from None: of the first of a trace."""
        if traceparent is None:
            trace_id, parent_id, flags = os.urandom(16).hex(), "", TraceFlags.RANDOM_TRACE_ID
        else:
            _, trace_id, parent_id, last = traceparent.split("-")
            flags = int(last, 16)
        if traceparent is None or not self._by_parent:
            asked = self._provider.sampler.should_sample(Context(), int(trace_id, 16), name)
            is_sampled = asked.decision is Decision.RECORD_AND_SAMPLE
            flags = (flags & ~TraceFlags.SAMPLED) | is_sampled
        return SpanIds(trace_id, os.urandom(8).hex(), parent_id, flags)

    def end(
        self,
        ids: SpanIds,
        name: str,
        kind: Kind,
        begun_ns: int,
        failure: str | None,
        attributes: dict[str, object],
    ) -> None:
        """Send a span that ends now, if it is sampled."""
        if ids.is_sampled:
            span = SpanRecord(ids, name, kind, begun_ns, time.time_ns(), failure, attributes)
            self._batches.on_end(cast("ReadableSpan", span))  # it is passed on to our exporter

    def close(self) -> None:
        """Send the last spans."""
        self._provider.shutdown()


class SpanExporter(OTLPSpanExporter):
    """Encodes records as the SDK's exporter encodes its spans, and sends them as it does."""

    def __init__(self, resource: Resource) -> None:
        super().__init__()
        scope = InstrumentationScope(SCOPE)
        of_sdk = ReadableSpan("", ANY, resource=resource, instrumentation_scope=scope)
        self._empty = encode_spans([of_sdk])
        del self._empty.resource_spans[0].scope_spans[0].spans[:]

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send these in one request. Those that `SpanSender` ended are records."""
        request = self.encode(cast("Sequence[SpanRecord]", spans))
        sent = self._client.export(request.SerializeToString())
        return SpanExportResult.SUCCESS if sent.success else SpanExportResult.FAILURE

    def encode(self, spans: Sequence[SpanRecord]) -> ExportTraceServiceRequest:
        request = ExportTraceServiceRequest()
        request.CopyFrom(self._empty)
        encoded = request.resource_spans[0].scope_spans[0].spans
        for span in spans:
            encoded.add(**_fields(span))
        return request


def _fields(span: SpanRecord) -> dict[str, Any]:
    """The fields of a span of OTLP."""
    flags = SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK | span.ids.flags
    if span.ids.parent_id:
        flags |= SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK
    return {
        "trace_id": bytes.fromhex(span.ids.trace_id),
        "span_id": bytes.fromhex(span.ids.span_id),
        "parent_span_id": bytes.fromhex(span.ids.parent_id),
        "flags": flags,
        "name": span.name,
        "kind": KINDS[span.kind],
        "start_time_unix_nano": span.begun_ns,
        "end_time_unix_nano": span.ended_ns,
        "attributes": [
            {"key": PREFIX + name, "value": _value(value)}
            for name, value in span.attributes.items()
            if value is not None
        ],
        "status": None
        if span.failure is None
        else {"code": Status.STATUS_CODE_ERROR, "message": span.failure},
    }


def _value(value: object) -> dict[str, object]:
    """The field of an OTLP value of any type; what has no other is text."""
    field = VALUE_FIELDS.get(type(value))
    if field is None or (isinstance(value, int) and value.bit_length() > INT_BITS_MAX):
        return {"string_value": str(value)}
    return {field: value}
