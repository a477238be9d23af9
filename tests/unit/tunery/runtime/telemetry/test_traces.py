"""Spans of a request, as a receiver of OTLP gets them."""

import time
from collections.abc import Iterator

import pytest

from tests.otlp import SpanReceiver, receiving_spans
from tunery.runtime.telemetry.traces import (
    DISABLED,
    ENDPOINTS,
    note_span,
    start_traces,
    stop_traces,
    traced,
)
from tunery.runtime.telemetry.trail import NO_TRAIL, Trail, current_trail

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = Trail("req_1", f"00-{TRACE}-{PARENT}-01")


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[SpanReceiver]:
    with receiving_spans() as receiver:
        monkeypatch.setenv(ENDPOINTS[0], receiver.endpoint)
        start_traces("billing")
        yield receiver
        stop_traces()


def test_work_within_a_request_is_a_child_of_its_span(receiver: SpanReceiver) -> None:
    with (
        traced(SAMPLED, "HTTP POST", "server", tenant="acme", attempt=2, code=None),
        traced(current_trail(), "effect train", "consumer"),
    ):
        assert current_trail().trace_id == TRACE
    assert current_trail() == NO_TRAIL
    stop_traces()
    inner, outer = receiver.of(TRACE)
    assert (outer.service, outer.name, outer.parent_id) == ("tunery-billing", "HTTP POST", PARENT)
    assert (inner.name, inner.parent_id) == ("effect train", outer.span_id)
    assert outer.attributes == {
        "tunery.request_id": "req_1",
        "tunery.tenant": "acme",
        "tunery.attempt": 2,
    }


def test_a_request_without_a_trace_begins_one_and_other_work_does_not(
    receiver: SpanReceiver,
) -> None:
    with traced(Trail("req_1"), "HTTP GET", "server", is_root=True):
        begun = current_trail().trace_id
    with traced(Trail("id of a tick"), "effect sweep", "consumer"):
        assert current_trail().traceparent is None
    note_span(NO_TRAIL, "decide job", "consumer", 0, None)
    stop_traces()
    assert [(span.name, span.trace_id, span.parent_id) for span in receiver.spans] == [
        ("HTTP GET", begun, "")
    ]


def test_an_unsampled_trace_is_passed_on_but_not_sent(receiver: SpanReceiver) -> None:
    with traced(Trail("req_1", f"00-{TRACE}-{PARENT}-00"), "HTTP GET", "server"):
        assert current_trail().trace_id == TRACE
        assert str(current_trail().traceparent).endswith("-00")
    note_span(Trail("req_1", f"00-{TRACE}-{PARENT}-00"), "decide job", "consumer", 0, None)
    stop_traces()
    assert receiver.spans == []


def test_a_request_that_the_sampler_leaves_out_begins_no_trace(
    receiver: SpanReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0")
    start_traces("billing")
    with traced(Trail("req_1"), "HTTP GET", "server", is_root=True):
        assert current_trail() == Trail("req_1")
    with traced(SAMPLED, "HTTP GET", "server", is_root=True):
        assert current_trail().trace_id == TRACE
    stop_traces()
    assert [span.trace_id for span in receiver.spans] == [TRACE]


def test_a_configured_sampler_overrides_the_client(
    receiver: SpanReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on")
    start_traces("billing")
    note_span(Trail("req_1", f"00-{TRACE}-{PARENT}-00"), "decide job", "consumer", 0, None)
    stop_traces()
    assert [span.name for span in receiver.of(TRACE)] == ["decide job"]


@pytest.mark.parametrize("text", ["", "1", "zz", f"{SAMPLED.traceparent}1", "01"])
def test_a_malformed_parent_on_the_log_gets_no_span(receiver: SpanReceiver, text: str) -> None:
    forged = Trail("req_1", text)
    note_span(forged, "decide job", "consumer", 0, None)
    with traced(forged, "effect train", "consumer"):
        assert current_trail() == forged
    stop_traces()
    assert receiver.spans == []


def test_an_error_is_named_by_its_type_alone(receiver: SpanReceiver) -> None:
    with pytest.raises(ValueError, match="a secret"), traced(SAMPLED, "effect", "consumer"):
        raise ValueError("a secret")
    note_span(SAMPLED, "decide job", "consumer", round(1_000 * time.time()) - 5_000, "over_budget")
    stop_traces()
    failed, refused = receiver.of(TRACE)
    assert (failed.failure, refused.failure) == ("ValueError", "over_budget")
    assert 4 < refused.seconds < 60
    assert "a secret" not in str(receiver.spans)


@pytest.mark.parametrize("endpoint", [None, "http://127.0.0.1:1"])
def test_without_an_endpoint_or_disabled_the_trail_is_unchanged(
    monkeypatch: pytest.MonkeyPatch, endpoint: str | None
) -> None:
    for name in ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    if endpoint is not None:
        monkeypatch.setenv(ENDPOINTS[0], endpoint)
        monkeypatch.setenv(DISABLED, "true")
    start_traces("billing")
    with traced(SAMPLED, "HTTP POST", "server", is_root=True):
        assert current_trail() == SAMPLED
    note_span(SAMPLED, "decide job", "consumer", 0, None)
    stop_traces()


def test_a_process_ends_soon_though_its_endpoint_is_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(ENDPOINTS[0], "http://127.0.0.1:1")
    monkeypatch.setenv(
        "OTEL_EXPORTER_OTLP_TIMEOUT", "0.5"
    )  # then the exporter gives up, and logs nothing
    start_traces("billing")
    with traced(SAMPLED, "HTTP POST", "server"):
        pass
    begun = time.monotonic()
    stop_traces()
    assert time.monotonic() - begun < 60  # without the limit the exporter retries for minutes
