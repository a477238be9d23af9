"""A log in memory that holds recorded journals, and the command line over it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from click.testing import CliRunner, Result

from schemas.streams import PARTITIONS
from schemas.topics import STREAMS, TOPICS
from schemas.units import Ms
from tests.histories.replaying import History, histories
from tunery.cli.journal import connection
from tunery.cli.main import main
from tunery.local.paths import DataDir
from tunery.runtime.bus.abstract import Record
from tunery.runtime.bus.memory import MemoryLog, Partition
from tunery.runtime.clock import SystemClock

RECORDED: dict[str, History] = {history.name: history for history in histories()}
OWNERS = RECORDED["account.owners_and_repeats"]  # two owners, void records, an operator's claim


class HistoryClock(SystemClock):
    """A clock that goes on where `OWNERS` ends, in whatever month its months are over."""

    def __init__(self) -> None:
        self._behind_ms = super().now_ms() - OWNERS.records[-1].timestamp

    def now_ms(self) -> Ms:
        return super().now_ms() - self._behind_ms


def empty() -> MemoryLog:
    return MemoryLog(HistoryClock())


def filled(*names: str) -> MemoryLog:
    """A log with these histories in their partitions."""
    log = empty()
    log.topics = {topic.name: [Partition() for _ in range(PARTITIONS)] for topic in TOPICS}
    for name in names:
        history = RECORDED[name]
        journal = log.topics[history.aggregate.stream.journal.name][history.partition]
        journal.records.extend(history.records)
    return log


def records(log: MemoryLog, stream: str, partition: int) -> list[Record]:
    return log.topics[STREAMS[stream].journal.name][partition].records


def change(log: MemoryLog, offset: int, old: bytes, new: bytes, history: History = OWNERS) -> None:
    """Tamper with one record."""
    held = records(log, history.aggregate.stream.name, history.partition)
    value = held[offset].value.replace(old, new)
    assert value != held[offset].value
    held[offset] = held[offset]._replace(value=value)


class Front:
    """`tunery journal …` over the log."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, log: Any) -> None:
        self.log = log

        @asynccontextmanager
        async def open_log(_: DataDir) -> AsyncIterator[Any]:
            yield self.log

        monkeypatch.setattr(connection, "open_log", open_log)

    def __call__(self, *words: object, code: int = 0) -> Result:
        done = CliRunner().invoke(main, ["journal", *map(str, words)])
        assert done.exit_code == code, (done.output, done.exception)
        return done

    def json(self, *words: object, code: int = 0) -> Any:
        return json.loads(self(*words, "--json", code=code).stdout)

    def lines(self, *words: object) -> list[Any]:
        return [json.loads(line) for line in self(*words, "--json").stdout.splitlines()]
