"""A real receiver of OTLP over HTTP: what a trace backend would get, as plain values."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.http_server import answering


class ReceivedSpan(NamedTuple):
    """A span. parent_id: empty for the first of a trace; failure: of its status, empty: none."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    seconds: float
    failure: str
    attributes: dict[str, Any]


@dataclass
class SpanReceiver:
    """The spans so far. endpoint: for OTEL_EXPORTER_OTLP_ENDPOINT."""

    endpoint: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list)

    def of(self, trace_id: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.trace_id == trace_id]

    def names(self, trace_id: str) -> set[tuple[str, str]]:
        """Services and names of the spans of a trace."""
        return {(span.service, span.name) for span in self.of(trace_id)}


@contextmanager
def receiving_spans() -> Iterator[SpanReceiver]:
    """A receiver on a port of this machine."""
    receiver = SpanReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            receiver.spans.extend(_read(ExportTraceServiceRequest.FromString(body)))
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

    with answering(Handler) as receiver.endpoint:
        yield receiver


def _read(request: Any) -> Iterator[ReceivedSpan]:
    for resource in request.resource_spans:
        about = _values(resource.resource.attributes)
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield ReceivedSpan(
                    service=about["service.name"],
                    name=span.name,
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    parent_id=span.parent_span_id.hex(),
                    seconds=(span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
                    failure=span.status.message,
                    attributes=_values(span.attributes),
                )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
