"""A signal is remembered, and asks nothing more of the process."""

import os
import signal

import pytest

from tunery.ml.stop import StopRequest


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
