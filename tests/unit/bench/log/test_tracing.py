"""Traced benchmark: trace contexts of its commands."""

from itertools import islice

import msgspec
import pytest

from bench.log import jobs
from bench.log.tracing import PARENTS, Blocks, SpansLost, _led_by, _receiver
from schemas.envelope import Envelope
from tunery.runtime.telemetry.traces import note_span, start_traces, stop_traces
from tunery.runtime.telemetry.trail import TRACEPARENT, Trail


def test_commands_name_a_request_and_its_trace() -> None:
    (command,) = islice(jobs.commands(1), 1)
    parent = PARENTS["sampled"]
    envelope = msgspec.json.decode(_led_by(command.value, parent), type=Envelope)
    trail = Trail(envelope.correlation, envelope.traceparent)
    assert trail.request_id is not None
    assert trail.trace_id is not None


def test_parents_are_what_their_names_say() -> None:
    assert PARENTS["off"] is None
    for name, flags in (("unsampled", "00"), ("sampled", "01")):
        parent = PARENTS[name]
        assert parent is not None
        assert TRACEPARENT.fullmatch(parent)
        assert parent.endswith(flags)


def test_blocks_of_each_kind_alternate() -> None:
    blocks = Blocks(2)
    for _ in range(2 * 2 * len(PARENTS)):
        blocks.count()
    assert {name: len(spent) for name, spent in blocks.spent_s.items()} == dict.fromkeys(PARENTS, 2)


def test_spans_that_were_lost_are_no_result() -> None:
    with pytest.raises(SpansLost, match="1 of 2"), _receiver(2):
        send_span()


def send_span() -> None:
    start_traces("bench")
    note_span(Trail("req_1", PARENTS["sampled"]), "decide job", "consumer", 0, None)
    stop_traces()
