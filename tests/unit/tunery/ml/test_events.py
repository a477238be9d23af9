import io
import json
import time

import pytest

from tunery.ml.checkpoints import File
from tunery.ml.events import EXIT_OF_CAUSE, Events, classify
from tunery.work.spec import Refused


def test_every_event_is_one_line_with_type_and_time() -> None:
    stream = io.StringIO()
    events = Events(stream, time.monotonic())
    events.emit("checkpoint", step=2, files=[File(name="a", sha256="0", bytes=3)])
    line = stream.getvalue()
    assert line.count("\n") == 1
    said = json.loads(line)
    assert (said["type"], said["step"], said["elapsed_ms"] >= 0) == ("checkpoint", 2, True)
    assert said["files"] == [{"name": "a", "sha256": "0", "bytes": 3}]


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (MemoryError(), "oom"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "oom"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "oom"),
        (RuntimeError("shapes do not match"), "platform"),
        (Refused("bad_data", "row 3", "mend it"), "bad_data"),
    ],
)
def test_failures_have_a_cause_and_advice(error: Exception, cause: str) -> None:
    refused = classify(error)
    assert refused.cause == cause
    assert refused.message
    assert refused.advice


def test_a_failure_is_said_and_has_an_exit_code_of_its_own() -> None:
    stream = io.StringIO()
    code = Events(stream, 0.0).failed(Refused("divergence", "NaN", "lower the rate"))
    said = json.loads(stream.getvalue())
    assert (said["cause"], said["message"], said["advice"]) == (
        "divergence",
        "NaN",
        "lower the rate",
    )
    assert code == EXIT_OF_CAUSE["divergence"]
    assert len(set(EXIT_OF_CAUSE.values())) == len(EXIT_OF_CAUSE)
