"""A request to stop, remembered until the next step."""

import signal
import threading
from collections.abc import Callable, Iterable
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


class StopNames:
    """Stop condition of trainings by name: one stops once it is named, or all are to."""

    def __init__(self, stop_all: Callable[[], bool]) -> None:
        self._stop_all = stop_all
        self._names: set[str] = set()

    def __call__(self, name: str) -> bool:
        return name in self._names or self._stop_all()

    def listen(self, lines: Iterable[bytes]) -> None:
        """Have a thread read names, one a line, until there are no more."""
        threading.Thread(target=self._read, args=(lines,), daemon=True).start()

    def _read(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            self._names.add(line.decode(errors="replace").strip())
