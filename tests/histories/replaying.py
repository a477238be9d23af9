"""Recorded journals, folded by today's code: `python -m tests.histories.replaying`."""

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from schemas.envelope import Entry
from services.billing.app import ACCOUNTS
from services.ingest.app import DATASETS
from services.registry.app import MODELS
from services.scheduler.app import JOBS, POOLS
from tunery.runtime.bus.abstract import Record
from tunery.runtime.journal.codec import canonical, codec_of, decode_record, state_hash
from tunery.runtime.journal.fold import Fold
from tunery.runtime.journal.reader import START, Accepted, read_record
from tunery.runtime.tools.archive import ArchiveReader
from tunery.runtime.tools.verify import fold_record
from tunery.runtime.verbs import Aggregate

FOLDER: Final = Path(__file__).parent / "recorded"
SUMS: Final = "SHA256SUMS"
HASH_SHOWN: Final = 16
AGGREGATES: Final[dict[str, Aggregate[Any]]] = {
    aggregate.stream.name: aggregate for aggregate in (ACCOUNTS, DATASETS, JOBS, MODELS, POOLS)
}


@dataclass(frozen=True)
class History:
    """One partition's journal, as it was written once. `name` is its file's, `stream.story`."""

    name: str
    aggregate: Aggregate[Any]
    records: tuple[Record, ...]

    @property
    def partition(self) -> int:
        return self.records[0].partition

    def states(self) -> Iterator[Any]:
        """The state after each record, claims and void ones included."""
        fold: Fold[Any] = Fold(self.aggregate.initial)
        for record in self.records:
            fold, _ = fold_record(self.aggregate, fold, record)
            yield fold.state

    def accepted(self) -> Iterator[Accepted]:
        """Yield the accepted records, as every reader gets them."""
        stream, position = self.aggregate.stream, START
        for record in self.records:
            judged = read_record(stream, codec_of(stream), position, record)
            position = judged.position
            if judged.accepted is not None:
                yield judged.accepted

    def types(self) -> set[str]:
        """Versioned names of all events in it, as they were written."""
        entries = [decode_record(record.value) for record in self.records]
        return {
            msgspec.json.decode(event)["type"]
            for entry in entries
            if isinstance(entry, Entry)
            for event in entry.events
        }


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """Expected result of folding a history."""

    fold_version: int
    state_hash: str
    # the beginning of the state's hash after each record, to name the first that differs;
    after: tuple[str, ...]
    state: msgspec.Raw  # the last one, there to be read


def histories(folder: Path = FOLDER) -> Iterator[History]:
    for path in sorted(folder.glob("*.jsonl")):
        with path.open("rb") as file:
            reading = ArchiveReader(file)
            records = tuple(reading.records())
        if len(reading.partitions) != 1 or not records:
            raise ValueError(f"{path.name} is not the journal of one partition; export it with -p")
        yield History(path.stem, AGGREGATES[reading.stream], records)


def sums(folder: Path = FOLDER) -> dict[str, str]:
    """File name → SHA-256, of all that was ever recorded."""
    path = folder / SUMS
    lines = path.read_text(encoding="ascii").splitlines() if path.exists() else []
    return {name: digest for digest, name in (line.split("  ") for line in lines)}


def expected(name: str, folder: Path = FOLDER) -> Expected:
    return msgspec.json.decode((folder / f"{name}.state.json").read_bytes(), type=Expected)


class Pruning:
    """States without what is at its default: a field that is added later changes no hash.

    A state shares most of its parts with the one before, so each part is pruned once.
    """

    def __init__(self) -> None:
        self._pruned: dict[int, tuple[Any, Any]] = {}  # by identity; what is kept keeps its own

    def prune(self, state: Any) -> Any:
        match state:
            case str() | int() | None:
                return state
            case msgspec.Struct() | Mapping() | tuple() | list():
                known = self._pruned.get(id(state))
                if known is None:
                    known = self._pruned[id(state)] = (state, self._without_defaults(state))
                return known[1]
            case _:
                return state

    def _without_defaults(self, state: Any) -> Any:
        if isinstance(state, msgspec.Struct):
            return {
                encoded: self.prune(value)
                for name, encoded, usual in _usual_fields(type(state))
                if (value := getattr(state, name)) != usual
            }
        if isinstance(state, Mapping):
            return {str(key): self.prune(item) for key, item in state.items()}
        return [self.prune(item) for item in state]


@cache
def _usual_fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, str, Any], ...]:
    """Name, name in JSON and default of each field."""
    return tuple(
        (
            field.name,
            field.encode_name,
            field.default_factory() if callable(field.default_factory) else field.default,
        )
        for field in msgspec.structs.fields(kind)
    )


def outcome(history: History) -> Expected:
    """Fold a history with today's code."""
    pruning = Pruning()
    *_, last = states = [pruning.prune(state) for state in history.states()]
    return Expected(
        fold_version=history.aggregate.fold_version,
        state_hash=state_hash(last),
        after=tuple(state_hash(state)[:HASH_SHOWN] for state in states),
        state=msgspec.Raw(canonical(last)),
    )


def difference(name: str, wanted: Expected, actual: Expected) -> str:
    """Empty when they are equal, or when the fold version says that they need not be."""
    if wanted.fold_version != actual.fold_version:
        return ""
    pairs = enumerate(zip(wanted.after, actual.after, strict=True))
    first = next((offset for offset, (before, now) in pairs if before != now), None)
    if first is None:
        return ""
    return (
        f"{name}: after offset {first} the same fold version {actual.fold_version} gives another "
        "state; mend evolve, or bump the fold version and run python -m tests.histories.record"
    )


if __name__ == "__main__":
    json.dump({history.name: outcome(history).state_hash for history in histories()}, sys.stdout)
