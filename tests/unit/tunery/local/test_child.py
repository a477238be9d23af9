"""Children of the stack: how a service is run."""

import signal
from pathlib import Path

from tunery.local.child import READY_EVENT, no_completion, no_preparation, service


def test_a_service_is_ready_by_its_own_log_event_and_stops_by_sigterm() -> None:
    child = service("gateway", ("python", "-m", "x"), Path("/d"), {"A": "1"})
    assert (child.name, child.argv, child.cwd) == ("gateway", ("python", "-m", "x"), Path("/d"))
    assert (child.ready, child.stop_signal) == (READY_EVENT, signal.SIGTERM)
    assert (child.identity, dict(child.env)) == (None, {"A": "1"})


def test_the_ready_event_is_recognised_with_and_without_a_space() -> None:
    lines = (b'{"event":"process.ready"}', b'{"level": "info", "event": "process.ready"}')
    assert all(any(text in line for text in READY_EVENT.texts) for line in lines)
    assert not any(text in b'{"event":"process.ready_soon"}' for text in READY_EVENT.texts)


async def test_a_service_needs_nothing_before_and_after_its_start() -> None:
    child = service("gateway", ("x",), Path("/d"), {})
    assert (child.prepare, child.settle) == (no_preparation, no_completion)
    child.prepare()
    await child.settle()
