"""Counts tokens of answers on disk, before anybody is told: what a killed engine had said counts.

A file holds a few seconds. Each line is all that an answer has spent in these seconds so far, so
its newest line counts. A file that is closed never changes, and its number never comes back: the
next one exists before it is deleted.
"""

import contextlib
import itertools
import os
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from schemas.answers import AnswerUse
from tunery.work.engine import Asker, Spent

SUFFIX: Final = ".jsonl"
METER: Final = "meter"  # the file with the random name of this folder's counts


class SpoolLine(Struct, frozen=True, array_like=True):
    """What an answer has spent in the seconds of its file. answer: its number in this process."""

    answer: int
    tenant: str
    use: AnswerUse


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
        self._folder, self._lock = folder, threading.Lock()
        self._tallies: set[Tally] = set()
        self._numbers = itertools.count()
        self.name = _name_of(folder)
        self._number = max(map(number_of, self._files()), default=0)
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
                raise OSError(f"no room for counts of answers in {self._folder}")
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
        return [path for path in self._files() if number_of(path) < self._number]

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob(f"*{SUFFIX}"))

    def _open_next(self) -> None:
        self._number += 1
        path = self._folder / f"{self._number:012}{SUFFIX}"
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        _sync_folder(self._folder)


def number_of(path: Path) -> int:
    return int(path.stem)


def uses_of(path: Path) -> dict[str, Sequence[AnswerUse]]:
    """Tenant → what a closed file counts of each key and model, in the order of their names."""
    newest: dict[int, SpoolLine] = {}
    for text in path.read_bytes().splitlines():
        with contextlib.suppress(msgspec.MsgspecError):  # cut off: the machine ended, or was full
            line = msgspec.json.decode(text, type=SpoolLine)
            newest[line.answer] = line
    uses: defaultdict[tuple[str, str, str], list[AnswerUse]] = defaultdict(list)
    for line in newest.values():
        uses[line.tenant, line.use.key_id, line.use.model].append(line.use)
    tenants: defaultdict[str, list[AnswerUse]] = defaultdict(list)
    for tenant, key_id, model in sorted(uses):
        tenants[tenant].append(_sum(uses[tenant, key_id, model]))
    return dict(tenants)


def _counts(use: AnswerUse) -> dict[str, int]:
    return {name: count for name, count in asdict(use).items() if isinstance(count, int)}


def _since(total: AnswerUse, before: AnswerUse) -> AnswerUse:
    earlier = _counts(before)
    counts = {name: count - earlier[name] for name, count in _counts(total).items()}
    return AnswerUse(key_id=total.key_id, model=total.model, **counts)


def _sum(uses: Sequence[AnswerUse]) -> AnswerUse:
    counts = [_counts(use) for use in uses]
    summed = {name: sum(count[name] for count in counts) for name in counts[0]}
    return AnswerUse(key_id=uses[0].key_id, model=uses[0].model, **summed)


def _name_of(folder: Path) -> str:
    """The folder's random name, which its first process gives it."""
    path = folder / METER
    if not path.exists():
        part = folder / f"{METER}.part"
        part.write_text(secrets.token_hex(8), encoding="ascii")
        part.replace(path)
        _sync_folder(folder)
    return path.read_text(encoding="ascii")


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
