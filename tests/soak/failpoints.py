"""Failpoints: calls of an owner's ports at which its process can be made to exit or to stop.

Nothing of production knows of them: the log, the store and asyncpg's connections are wrapped.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from asyncpg.connection import Connection

from tunery.platform.store.statements import COMMIT
from tunery.runtime.bus.abstract import Appended, Commit, Log, Writer
from tunery.runtime.store.abstract import CommitResult, RowBatch, Store

#: in the order in which an entry passes them
POINTS: Final = (
    "append.before",
    "append.after",  # sent, not acknowledged
    "readback.before",  # acknowledged, the offset not yet compared
    "readback.after",  # the owner takes it as accepted
    "sql.before",
    "commit.sent",  # the batch is sent to PostgreSQL, not answered
    "commit.after",  # committed, and not yet notified
    "sql.after",
    "effect.before",
    "effect.after",  # the effect is done, its outcome not sent
    "send.before",
    "send.after",
    "position.before",
    "position.after",
)
#: reached only by an owner that takes over a partition
CLAIM_POINTS: Final = ("claim.before", "claim.after")
EXIT_STATUS: Final = 137


class Failpoints:
    """Failpoints of a process. armed: a file with one order, such as `exit append.before`."""

    def __init__(self, armed: Path) -> None:
        self._armed = armed

    def reach(self, point: str) -> None:
        """Exit or stop the process here if the armed order names this point."""
        try:
            action, _, where = self._armed.read_text(encoding="ascii").partition(" ")
        except FileNotFoundError:
            return
        if where != point:
            return
        self._armed.unlink()
        if action == "exit":
            os._exit(EXIT_STATUS)
        os.kill(os.getpid(), signal.SIGSTOP)


class _Pending(Awaitable[Appended]):
    def __init__(self, pending: Awaitable[Appended], points: Failpoints) -> None:
        self._pending, self._points = pending, points

    def __await__(self) -> Generator[Any, None, Appended]:
        appended = yield from self._pending.__await__()
        self._points.reach("readback.before")
        return appended


class FailingWriter:
    """Implements `Writer`."""

    def __init__(self, writer: Writer, points: Failpoints) -> None:
        self._writer, self._points = writer, points

    async def submit(self, key: bytes, value: bytes) -> Awaitable[Appended]:
        self._points.reach("append.before")
        pending = await self._writer.submit(key, value)
        self._points.reach("append.after")
        return _Pending(pending, self._points)

    async def append(self, key: bytes, value: bytes) -> Appended:
        self._points.reach("claim.before")
        appended = await self._writer.append(key, value)
        self._points.reach("claim.after")
        return appended

    async def close(self) -> None:
        await self._writer.close()


class FailingLog:
    """A `Log` with failpoints; all other methods are those of the real one."""

    def __init__(self, log: Log, points: Failpoints) -> None:
        self._log, self._points = log, points

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def writer(self, topic: str, partition: int) -> Writer:
        return FailingWriter(await self._log.writer(topic, partition), self._points)

    async def send(
        self, topic: str, key: bytes, value: bytes, partition: int | None = None
    ) -> Appended:
        self._points.reach("send.before")
        appended = await self._log.send(topic, key, value, partition)
        self._points.reach("send.after")
        return appended

    async def send_all(
        self, topic: str, partition: int, records: Sequence[tuple[bytes, bytes]]
    ) -> None:
        self._points.reach("send.before")
        await self._log.send_all(topic, partition, records)
        self._points.reach("send.after")

    async def commit(self, group: str, topic: str, commits: Mapping[int, Commit]) -> None:
        self._points.reach("position.before")
        await self._log.commit(group, topic, commits)
        self._points.reach("position.after")


class FailingStore:
    """A `Store` with failpoints; all other methods are those of the real one."""

    def __init__(self, store: Store, points: Failpoints) -> None:
        self._store, self._points = store, points

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, batch: RowBatch) -> CommitResult:
        self._points.reach("sql.before")
        committed = await self._store.commit(batch)
        self._points.reach("sql.after")
        return committed


def wrap_commits(points: Failpoints) -> None:
    """Make every commit of this process reach `commit.sent` and `commit.after`."""
    ask: Callable[..., Awaitable[Any]] = Connection.fetchval

    async def passing(self: Any, query: str, *arguments: Any) -> Any:
        if query != COMMIT:
            return await ask(self, query, *arguments)
        asked = asyncio.ensure_future(ask(self, query, *arguments))
        await asyncio.sleep(0)  # by then it is written to the socket
        points.reach("commit.sent")
        answer = await asked
        points.reach("commit.after")
        return answer

    Connection.fetchval = passing  # type: ignore[assignment,method-assign]  # the point of this function
