"""A signal or a name is remembered, and asks nothing more of the process."""

import os
import signal
import time

import pytest

from tunery.ml.stop import StopNames, StopRequest


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_remembered(number: signal.Signals) -> None:
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    stop = StopRequest()
    try:
        stop.listen()
        assert not stop()
        os.kill(os.getpid(), number)
        assert stop()
        assert stop()
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def test_a_named_training_stops_and_a_signal_stops_all() -> None:
    all_stop = False
    names = StopNames(lambda: all_stop)
    read, write = os.pipe()
    with os.fdopen(read, "rb") as lines, os.fdopen(write, "wb") as stream:
        names.listen(lines)
        stream.write(b"a job\n\xff\n")
        stream.flush()
        deadline_s = time.monotonic() + 60
        while not names("a job") and time.monotonic() < deadline_s:
            time.sleep(0.01)
        assert names("a job")
        assert not names("another")
        stream.close()
        all_stop = True
        assert names("another")
