"""A request to stop, remembered until the next step."""

import signal
from types import FrameType


class StopRequest:
    """True once SIGTERM or SIGINT has come in."""

    def __init__(self) -> None:
        self._requested = False

    def __call__(self) -> bool:
        return self._requested

    def listen(self) -> None:
        """Install the signal handlers."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._requested = True
