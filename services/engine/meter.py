"""Counts tokens of answers on disk, before they are sent: tokens of a killed engine count.

A file holds a few seconds. Each line is all that an answer has spent in these seconds so far, so
its newest line counts. A file that is closed never changes, and its number never comes back: the
next one exists before it is deleted.
"""

import itertools
import os
import secrets
import threading
import time
from pathlib import Path

import msgspec

from schemas.answers import AnswerUse
from tunery.platform.answer_files import (
    METER,
    SpoolLine,
    counts_of,
    number_of,
    open_spool,
    spool_files,
    sync_folder,
)
from tunery.work.engine import Asker, Spent


class Tally:
    """The tokens of one answer."""

    def __init__(self, meter: "AnswerMeter", number: int, asker: Asker) -> None:
        self._meter, self.number, self.asker = meter, number, asker
        self._began_ns = time.monotonic_ns()
        self.noted = self.before = AnswerUse(
            key_id=asker.key_id,
            model=asker.model,
            requests=0,
            prompt_tokens=0,
            cached_tokens=0,
            completion_tokens=0,
            engine_ms=0,
        )

    def note(self, spent: Spent) -> None:
        """Write down what the answer has spent so far. Raises OSError."""
        first = self.asker.first
        self._meter.write(
            self,
            AnswerUse(
                key_id=self.asker.key_id,
                model=self.asker.model,
                requests=int(first),
                prompt_tokens=spent.prompt_tokens if first else 0,
                cached_tokens=spent.cached_tokens if first else 0,
                completion_tokens=spent.completion_tokens,
                engine_ms=(time.monotonic_ns() - self._began_ns) // 1_000_000,
            ),
        )

    def end(self) -> None:
        """No more is spent."""
        self._meter.forget(self)


class AnswerMeter:
    """The files of one folder. Only one process may write to it."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder, self._lock = folder, threading.Lock()
        self._tallies: set[Tally] = set()
        self._numbers = itertools.count()
        _name(folder)
        self._number = max(map(number_of, spool_files(folder)), default=0)
        self._open_next()

    def begin(self, asker: Asker) -> Tally:
        """Count a new answer."""
        with self._lock:
            tally = Tally(self, next(self._numbers), asker)
            self._tallies.add(tally)
        return tally

    def write(self, tally: Tally, total: AnswerUse) -> None:
        """Note what an answer has spent since its beginning. Raises OSError."""
        with self._lock:
            line = SpoolLine(tally.number, tally.asker.tenant, _since(total, tally.before))
            text = msgspec.json.encode(line) + b"\n"
            if os.write(self._file, text) < len(text):
                raise OSError(f"no room for counts of answers in {self.folder}")
            tally.noted = total

    def forget(self, tally: Tally) -> None:
        with self._lock:
            self._tallies.discard(tally)

    def close_file(self) -> None:
        """Begin the next file; the one before holds what was spent until now. Raises OSError."""
        with self._lock:
            written = self._file
            if os.fstat(written).st_size == 0:
                return
            self._open_next()
            for tally in self._tallies:
                tally.before = tally.noted
        os.fsync(written)
        os.close(written)

    def closed_files(self) -> list[Path]:
        """Files that do not change any more, the oldest first."""
        return [path for path in spool_files(self.folder) if number_of(path) < self._number]

    def _open_next(self) -> None:
        self._number += 1
        self._file = open_spool(self.folder, self._number)


def _since(total: AnswerUse, before: AnswerUse) -> AnswerUse:
    earlier = counts_of(before)
    counts = {name: count - earlier[name] for name, count in counts_of(total).items()}
    return AnswerUse(key_id=total.key_id, model=total.model, **counts)


def _name(folder: Path) -> None:
    """Give the folder the random name under which its counts are sent, once."""
    path = folder / METER
    if not path.exists():
        part = folder / f"{METER}.part"
        part.write_text(secrets.token_hex(8), encoding="ascii")
        part.replace(path)
        sync_folder(folder)
