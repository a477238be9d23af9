"""What commands of a traced bench say of their requests."""

from itertools import islice

import msgspec

from bench.log import jobs
from bench.log.tracing import PARENTS, SHARE, _led_by
from schemas.envelope import Envelope
from tunery.runtime.telemetry.trail import TRACEPARENT, Trail


def test_commands_name_a_request_and_its_trace() -> None:
    (command,) = islice(jobs.commands(1), 1)
    parent = PARENTS["all"][0]
    envelope = msgspec.json.decode(_led_by(command.value, parent), type=Envelope)
    trail = Trail(envelope.correlation, envelope.traceparent)
    assert trail.request_id is not None
    assert trail.trace_id is not None


def test_one_of_so_many_parents_is_sampled() -> None:
    some = [parent or "" for parent in PARENTS["some"]]
    assert len(some) == SHARE
    assert all(TRACEPARENT.fullmatch(parent) for parent in some)
    assert sum(parent.endswith("-01") for parent in some) == 1
