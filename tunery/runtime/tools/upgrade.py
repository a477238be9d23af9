"""State of an upgrade: which process reads up to which level, and what blocks the next level."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from schemas.envelope import FIRST_LEVEL
from schemas.levels import LEVEL, SILENT_MS, LevelOrder, ReleaseNotice
from schemas.streams import LEVELS_TOPIC, RELEASES_TOPIC, UPGRADE_PARTITION
from schemas.units import Ms
from tunery.runtime.bus.abstract import Log, Record
from tunery.runtime.bus.reading import records_now
from tunery.runtime.bus.signing import SenderKeys, Unproven
from tunery.runtime.journal.codec import MALFORMED
from tunery.runtime.levels import read_order


class RunningProcess(Struct, frozen=True, kw_only=True):
    """A process as it has announced itself."""

    service: str
    process: str
    release: str
    level: int  # the highest level of the log that it can read
    silent_ms: Ms  # since its last announcement
    proven: bool  # it is the one that it says; where nothing is signed, all are


class UpgradeState(Struct, frozen=True, kw_only=True):
    """Releases that run, and the level of the log."""

    level: int  # of the log; while a raise is unfinished, the lowest of its streams
    levels: dict[str, int]  # by stream
    readable: int  # the highest level that the release of this tool can read
    processes: tuple[RunningProcess, ...]  # that run, by name
    missing: tuple[str, ...]  # services that own streams, and of which no process runs

    def waited_for(self) -> list[str]:
        """Return the processes that block the raise, each with its reason; empty: none does."""
        late = [
            f"{each.process}: release {each.release} reads up to level {each.level}"
            for each in self.processes
            if each.proven and each.level < self.readable
        ]
        late += [
            f"{each.process}: its announcement is not signed; give it its keys of this release "
            f"(`tunery kafka keys {each.service}`)"
            for each in self.processes
            if not each.proven
        ]
        return late + [f"{service}: no process of it runs" for service in self.missing]


async def read_upgrade(
    log: Log, keys: SenderKeys, owners: Mapping[str, str], now: Ms
) -> UpgradeState:
    """Read the state of an upgrade. keys: an operator's. owners: owner of each stream.

    Raises Unavailable, OutOfRange.
    """
    levels = dict.fromkeys(owners, FIRST_LEVEL)
    async for record in records_now(log, LEVELS_TOPIC, UPGRADE_PARTITION):
        order = read_order(record, keys)
        if order is not None:
            levels[order.stream] = max(levels.get(order.stream, FIRST_LEVEL), order.level)
    notices = [record async for record in records_now(log, RELEASES_TOPIC, UPGRADE_PARTITION)]
    processes = tuple(running(notices, keys, now))
    services = {process.service for process in processes}
    return UpgradeState(
        level=min(levels.values()),
        levels=levels,
        readable=LEVEL,
        processes=processes,
        missing=tuple(sorted(set(owners.values()) - services)),
    )


def running(notices: Sequence[Record], keys: SenderKeys, now: Ms) -> Iterable[RunningProcess]:
    """Processes whose last announcement is fresh, and not that they end; by name."""
    last: dict[str, RunningProcess] = {}
    for record in notices:
        try:
            notice = msgspec.json.decode(record.value, type=ReleaseNotice)
        except MALFORMED:
            continue
        is_proven = _is_proven(record, notice, keys)
        known = last.get(notice.process)
        if known is not None and known.proven and not is_proven:
            continue  # an unsigned notice does not replace a signed one
        silent_ms = SILENT_MS if notice.ended else max(0, now - record.timestamp)
        last[notice.process] = RunningProcess(
            service=notice.service,
            process=notice.process,
            release=notice.release,
            level=notice.level,
            silent_ms=silent_ms,
            proven=is_proven,
        )
    return [last[name] for name in sorted(last) if last[name].silent_ms < SILENT_MS]


def _is_proven(record: Record, notice: ReleaseNotice, keys: SenderKeys) -> bool:
    try:
        sender = keys.sender_of(RELEASES_TOPIC, record.value, record.timestamp)
    except Unproven:
        return False
    return sender in (None, notice.service) and notice.process.startswith(f"{notice.service}@")


async def raise_level(
    log: Log, keys: SenderKeys, streams: Iterable[str], level: int, operator: str
) -> None:
    """Order the level of each stream, signed by an operator. An order stays on the log for ever.

    Raises Unavailable, AppendUnknown; what was ordered then may be ordered again.
    """
    for stream in streams:
        order = LevelOrder(stream=stream, level=level, operator=operator)
        value = keys.sign(stream, msgspec.json.encode(order))
        await log.send(LEVELS_TOPIC, f"{stream}/{level}".encode(), value, UPGRADE_PARTITION)
