"""Heartbeats of a rank: where it is, every second and from its own thread.

A process that stands still says nothing, and one that waits for it goes on saying where it waits.
So the parent of the ranks tells one from the other (`tunery.ranks.group`).
"""

import threading
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from tunery.ml.events import EventWriter
from tunery.ml.ranks import pending_collective
from tunery.work.events import RankBeat

BEAT_S: Final = 1.0


class Beats:
    """Heartbeats of one rank, until `close`."""

    def __init__(self, events: EventWriter, rank: int, every_s: float = BEAT_S) -> None:
        self._events, self._every_s = events, every_s
        self._now = RankBeat(rank=rank, phase="loading")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="beats", daemon=True)
        self._thread.start()

    def at(self, step: int, phase: str, micro_batch: int = 0) -> None:
        """Set the phase of the rank, which the next heartbeat reports.

        phase: what a person may read, such as "forward", "reduce", "save"
        """
        beat = self._now
        self._now = RankBeat(
            rank=beat.rank,
            step=step,
            phase=phase,
            micro_batch=micro_batch,
            moved=beat.moved + 1,
        )

    def close(self) -> None:
        """Stop the heartbeats."""
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        moved = -1
        try:
            while True:
                beat = self._now
                waits = ""
                if beat.moved == moved:  # a rank that moves has left its collective by now
                    with suppress(Exception):  # names of torch are private: beat without them
                        waits = pending_collective()
                moved = beat.moved
                self._events.emit(replace(beat, collective=waits))
                if self._ended.wait(self._every_s):
                    return
        except OSError:
            return  # the reader is gone, which the training thread notices as well
