"""Events as they are written: one JSON object a line, failures with a cause and an exit code."""

import io
import json
import time

import pytest

from tunery.ml.events import EventWriter, classify
from tunery.work.codec import decode_event
from tunery.work.events import Failed, ScoringFinished
from tunery.work.exits import EXIT_OF_CAUSE, WorkError


def test_every_event_is_one_line_with_type_and_time() -> None:
    stream = io.BytesIO()
    EventWriter(stream, time.monotonic() - 2).emit(
        ScoringFinished(results="a\nb", sha256="0", bytes=3)
    )
    line = stream.getvalue()
    assert line.count(b"\n") == 1
    event = json.loads(line)
    assert event.pop("elapsed_ms") >= 2_000
    ended = {"type": "scoring_finished", "results": "a\nb", "sha256": "0", "bytes": 3}
    assert event == {**ended, "variant": None}


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (MemoryError(), "oom"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "oom"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "oom"),
        (RuntimeError("shapes do not match"), "platform"),
        (OSError(28, "No space left on device"), "bad_node"),
        (RuntimeError("CUDA error: uncorrectable ECC error encountered"), "bad_node"),
        (WorkError("bad_data", "row 3", "mend it"), "bad_data"),
    ],
)
def test_failures_have_a_cause_and_advice(error: Exception, cause: str) -> None:
    failure = classify(error)
    assert failure.cause == cause
    assert failure.message
    assert failure.advice


def test_a_failure_is_an_event_and_has_an_exit_code_of_its_own() -> None:
    stream = io.BytesIO()
    error = WorkError("divergence", "NaN", "lower the rate")
    code = EventWriter(stream, 0.0).emit_failure(error)
    event = decode_event(stream.getvalue())
    assert isinstance(event, Failed)
    assert (event.cause, event.message, event.advice) == ("divergence", "NaN", "lower the rate")
    assert code == EXIT_OF_CAUSE["divergence"]
    assert len(set(EXIT_OF_CAUSE.values())) == len(EXIT_OF_CAUSE)
