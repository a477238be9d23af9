"""Entries become records of the topic of audit, each with the hash of the writer's one before.

Commands that owners refuse because of their sender are noted like refused requests.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import msgspec
from msgspec.structs import replace

from schemas import errors
from schemas.audit import AuditEntry, AuditKind, AuditRecorded
from schemas.envelope import GENESIS
from schemas.topics import AUDIT, AUDIT_PARTITION
from schemas.units import DAY_MS, Ms
from services.gateway.ports import AuditNotes
from services.gateway.views.todos import REFUSED_SENDER, SenderRefused
from services.gateway.web.metrics import AUDIT_LOST
from tunery.runtime.bus.abstract import AppendUnknown, BusError, Log, Unavailable
from tunery.runtime.bus.reading import record_at
from tunery.runtime.clock import Clock
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.verbs import Effect
from tunery.runtime.watchdog import beat

LOG: Final = logging.getLogger("tunery.gateway")
MINUTE_MS: Final[Ms] = 60_000
EVERY_MS: Final[Ms] = 500
LAST_MS_MAX: Final[Ms] = 2_000  # for what is left when the process ends
RECORD_ENTRIES_MAX: Final = 500
WAITING_MAX: Final = 20_000  # entries in memory while the log is away
WINDOWS_MAX: Final = 20_000
#: within which equal entries are one; changes, also those by operators, are entries of their own
WINDOWS_MS: Final[dict[AuditKind, Ms]] = {
    "use": 10 * MINUTE_MS,
    "content": MINUTE_MS,
    "operator": MINUTE_MS,
    "refusal": MINUTE_MS,
}


@dataclass
class _Window:
    """A while in which equal entries are counted."""

    end: Ms
    repeats: AuditEntry | None = None  # entry that counts the requests after the first


class AuditWriter:
    """Implements `AuditNotes` and `Host`.

    A record of unknown outcome is sent again with the same bytes: readers know it by its number.
    What waits in memory is lost with a process that is killed: at most that of EVERY_MS, or of an
    outage of the log.
    """

    name = "audit writer"

    def __init__(self, log: Log, clock: Clock, writer: str) -> None:
        self._log, self._clock, self._writer = log, clock, writer
        self._windows: dict[AuditEntry, _Window] = {}
        self._waiting: list[AuditEntry] = []
        self._lost = 0
        self._number, self._previous = 0, ""
        self._unsent: bytes | None = None
        self._ready, self._is_away = asyncio.Event(), False

    def note(self, entry: AuditEntry) -> None:
        """Keep an entry, or count it with an equal one."""
        length = WINDOWS_MS.get(entry.kind)
        if length is None or (entry.kind == "operator" and entry.method != "GET"):
            self._add(entry)
            return
        same = replace(entry, at=0, request_id="")
        window = self._windows.get(same)
        if window is not None and entry.at < window.end:
            before = window.repeats
            window.repeats = entry if before is None else replace(entry, times=before.times + 1)
            return
        if window is not None and window.repeats is not None:
            self._add(window.repeats)
        if window is not None or len(self._windows) < WINDOWS_MAX:
            self._windows[same] = _Window(entry.at + length)
        self._add(entry)

    def _add(self, entry: AuditEntry) -> None:
        if len(self._waiting) < WAITING_MAX:
            self._waiting.append(entry)
            return
        if not self._lost:
            log_event(LOG, logging.ERROR, "audit.entries_lost", why="the log is away for too long")
        self._lost += entry.times
        AUDIT_LOST.inc(entry.times)

    async def ready(self) -> None:
        await self._ready.wait()

    async def run(self) -> None:
        """Send until cancelled, and then what is left."""
        self._ready.set()
        try:
            while True:
                beat("waiting")
                await self._send_or_wait()
                await self._clock.sleep(EVERY_MS)
        except asyncio.CancelledError:
            with suppress(BusError, TimeoutError):
                async with asyncio.timeout(LAST_MS_MAX / 1_000):
                    await self.send(is_last=True)
            raise

    async def _send_or_wait(self) -> None:
        try:
            await self.send()
        except (Unavailable, AppendUnknown) as error:
            if not self._is_away:
                log_event(LOG, logging.WARNING, "audit.waiting", error)
            self._is_away = True
        else:
            self._is_away = False

    async def send(self, *, is_last: bool = False) -> None:
        """Send all that waits; is_last: also what is counted in a window that is not over.

        Raises Unavailable, AppendUnknown: it is sent by the next call.
        """
        self._close_windows(None if is_last else self._clock.now_ms())
        while self._unsent is not None or self._waiting:
            if self._unsent is None:
                self._unsent = await self._next_record()
            beat("working")
            await self._log.send(AUDIT.name, self._writer.encode(), self._unsent, AUDIT_PARTITION)
            self._previous, self._number = sha256(self._unsent).hexdigest(), self._number + 1
            self._unsent = None

    def _close_windows(self, now: Ms | None) -> None:
        """Close the windows that ended before `now` (None: all) and record their repeats; windows
        with repeats begin again.
        """
        over = [(same, window) for same, window in self._windows.items() if _is_over(window, now)]
        for same, window in over:
            if window.repeats is None:
                del self._windows[same]
                continue
            self._add(window.repeats)
            window.end, window.repeats = (now or window.end) + WINDOWS_MS[same.kind], None

    async def _next_record(self) -> bytes:
        if not self._previous:
            self._previous = await self._last_hash()
        entries = tuple(self._waiting[:RECORD_ENTRIES_MAX])
        record = AuditRecorded(
            writer=self._writer,
            number=self._number,
            previous=self._previous,
            entries=entries,
            lost=self._lost,
        )
        del self._waiting[: len(entries)]
        self._lost = 0
        return msgspec.json.encode(record)

    async def _last_hash(self) -> str:
        """Return the hash of the log's last record, which the first record of a new chain refers
        to.
        """
        start, end = await self._log.bounds(AUDIT.name, AUDIT_PARTITION)
        if start == end:
            return GENESIS.hex()
        last = await record_at(self._log, AUDIT.name, AUDIT_PARTITION, end - 1)
        return sha256(last.value).hexdigest()


def _is_over(window: _Window, now: Ms | None) -> bool:
    return now is None or window.end <= now


AGE_MS_MAX: Final[Ms] = DAY_MS  # a rebuilt projection does not note the past again


def refused_senders(audit: AuditNotes, clock: Clock) -> Effect[SenderRefused]:
    """The effect that notes refusals."""

    async def run(refused: SenderRefused, tenant: str, _: int = 1) -> None:
        if clock.now_ms() - refused.at <= AGE_MS_MAX:
            named = (refused.sender, refused.command, refused.operator, refused.entry)
            audit.note(
                AuditEntry(
                    at=refused.at,
                    kind="operator" if refused.operator else "refusal",
                    tenant="",
                    actor_tenant="",
                    key_id="",
                    address="",
                    method="command",
                    route=refused.stream,
                    object_ids=tuple(filter(None, (*named, refused.reason))),
                    code=errors.OPERATOR_REFUSED if refused.operator else errors.SENDER_REFUSED,
                )
            )

    return Effect(kind=REFUSED_SENDER, body=SenderRefused, run=run, unrecorded=True)
