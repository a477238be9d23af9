"""A notice to leave, remembered until the next boundary."""

import signal
from types import FrameType


class Stop:
    """True once SIGTERM or SIGINT has come in."""

    def __init__(self) -> None:
        self._asked = False

    def __call__(self) -> bool:
        return self._asked

    def listen(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
