"""Spans are encoded as OpenTelemetry's own exporter encodes its spans."""

import enum
from collections.abc import Iterator

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from tunery.runtime.telemetry.otlp import (
    KINDS,
    SCOPE,
    Kind,
    SpanExporter,
    SpanIds,
    SpanRecord,
    SpanSender,
)
from tunery.runtime.telemetry.traces import ENDPOINTS

TRACE, SPAN, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "b7ad6b7169203331", "00f067aa0ba902b7"
SAMPLED, LEFT_OUT = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"
RESOURCE = Resource.create({"service.name": "tunery-billing", "process.pid": 7})
ATTRIBUTES: dict[str, str | int | float | bool] = {
    "tenant": "acme",
    "attempt": 2,
    "share": 0.5,
    "is_last": False,
}


@pytest.fixture
def sender(monkeypatch: pytest.MonkeyPatch) -> Iterator[SpanSender]:
    """One whose endpoint is away; nothing is sent through it here."""
    monkeypatch.setenv(ENDPOINTS[0], "http://127.0.0.1:1")
    sender = SpanSender("billing")
    yield sender
    sender.close()


@pytest.mark.parametrize("parent_id", [PARENT, ""])
@pytest.mark.parametrize("failure", [None, "over_budget"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_bytes_of_a_span_are_those_of_the_sdk(
    kind: Kind, failure: str | None, parent_id: str
) -> None:
    ids = SpanIds(TRACE, SPAN, parent_id, TraceFlags.SAMPLED)
    record = SpanRecord(ids, "decide job", kind, 1_000, 2_000, failure, {**ATTRIBUTES})
    ours = SpanExporter(RESOURCE).encode([record, record])
    theirs = encode_spans([readable(record), readable(record)])
    for span in ours.resource_spans[0].scope_spans[0].spans:
        assert span.flags & TraceFlags.SAMPLED  # which theirs leaves out
        span.flags ^= TraceFlags.SAMPLED
        span.status.SetInParent()
    assert ours == theirs


def readable(record: SpanRecord) -> ReadableSpan:
    """The span as the SDK has it."""
    ids, failure = record.ids, record.failure
    trace_id = int(ids.trace_id, 16)
    parent = (
        SpanContext(trace_id, int(ids.parent_id, 16), is_remote=True) if ids.parent_id else None
    )
    status = Status() if failure is None else Status(StatusCode.ERROR, failure)
    return ReadableSpan(
        record.name,
        SpanContext(trace_id, int(ids.span_id, 16), is_remote=False),
        parent,
        RESOURCE,
        {f"tunery.{name}": value for name, value in ATTRIBUTES.items()},
        kind=SpanKind[record.kind.upper()],
        status=status,
        start_time=record.begun_ns,
        end_time=record.ended_ns,
        instrumentation_scope=InstrumentationScope(SCOPE),
    )


class Color(enum.Enum):
    RED = "red"


def test_what_otlp_has_no_number_for_is_sent_as_text() -> None:
    ids = SpanIds(TRACE, SPAN, PARENT, TraceFlags.SAMPLED)
    attributes: dict[str, object] = {"step": 2**63, "least": -(2**63) + 1, "color": Color.RED}
    record = SpanRecord(ids, "decide job", "consumer", 1, 2, None, attributes | {"code": None})
    (span,) = spans_of(record)
    assert [(each.key, each.value.WhichOneof("value")) for each in span.attributes] == [
        ("tunery.step", "string_value"),
        ("tunery.least", "int_value"),
        ("tunery.color", "string_value"),
    ]
    assert span.attributes[0].value.string_value == "9223372036854775808"


def spans_of(*records: SpanRecord) -> list[Span]:
    return list(SpanExporter(RESOURCE).encode(records).resource_spans[0].scope_spans[0].spans)


def test_flags_of_a_parent_say_whether_a_span_is_wanted(sender: SpanSender) -> None:
    assert sender.is_wanted(SAMPLED)
    assert sender.is_wanted(f"00-{TRACE}-{PARENT}-03")  # its trace id is random, too
    assert not sender.is_wanted(LEFT_OUT)
    assert not sender.is_wanted(None)


@pytest.mark.parametrize("text", ["", "1", "zz", f"{SAMPLED}1", SAMPLED[1:]])
def test_a_parent_that_cannot_be_read_has_no_spans(sender: SpanSender, text: str) -> None:
    assert not sender.is_wanted(text)


def test_a_child_keeps_the_trace_and_names_its_parent(sender: SpanSender) -> None:
    ids = sender.new_ids(SAMPLED, "decide job")
    assert (ids.trace_id, ids.parent_id, ids.flags) == (TRACE, PARENT, 1)
    assert ids.traceparent == f"00-{TRACE}-{ids.span_id}-01"
    assert sender.new_ids(SAMPLED, "decide job").span_id != ids.span_id


@pytest.mark.parametrize(
    ("sampler", "argument", "share"),
    [
        (None, None, 1),
        ("always_off", None, 0),
        ("parentbased_always_off", None, 0),
        ("parentbased_traceidratio", "0.5", 0.5),
    ],
)
def test_a_sampler_decides_of_the_first_span_of_a_trace(
    monkeypatch: pytest.MonkeyPatch, sampler: str | None, argument: str | None, share: float
) -> None:
    monkeypatch.setenv(ENDPOINTS[0], "http://127.0.0.1:1")
    for name, value in {
        "OTEL_TRACES_SAMPLER": sampler,
        "OTEL_TRACES_SAMPLER_ARG": argument,
    }.items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    sender = SpanSender("billing")
    firsts = [sender.new_ids(None, "HTTP POST") for _ in range(1_000)]
    sender.close()
    assert len({ids.trace_id for ids in firsts}) == len(firsts)
    assert sum(ids.is_sampled for ids in firsts) / len(firsts) == pytest.approx(share, abs=0.1)
