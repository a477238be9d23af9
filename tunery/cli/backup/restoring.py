"""Restores a backup into an empty installation, and goes on where a restore was interrupted.

Nothing is written unless all of the backup is sound, fits together and can be opened here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from schemas.envelope import FIRST_LEVEL, Claim
from schemas.streams import PARTITIONS
from schemas.topics import AUDIT, AUDIT_PARTITION, STREAMS, TOPICS
from schemas.units import Ms
from tunery.cli.backup.folder import (
    AUDIT_NAME,
    DAMAGED,
    JOURNALS,
    Backup,
    BackupFolder,
    Manifest,
    commits_of,
)
from tunery.cli.backup.surroundings import (
    ListObjects,
    missing_objects,
    restore_keys,
    unopened_keys,
)
from tunery.cli.journal.restore import STOP, append_records, claim_restored
from tunery.cli.journal.scan import topic_records
from tunery.local.errors import LocalError
from tunery.runtime.bus.abstract import OperatedLog, Record
from tunery.runtime.hosts.reactor import positions_of
from tunery.runtime.journal.codec import Undecodable, decode_record
from tunery.runtime.tools.cut import Mark, mark_of, shortened_cut
from tunery.runtime.tools.inspection import PartitionReport, PartitionScan, missing_causes

NAMED_MAX: Final = 10  # names in the text of an error
Cut = Mapping[str, int]


class RestoreReport(Struct, frozen=True, kw_only=True):
    """Result of a restore, or of a check of a backup."""

    cut_ms: Ms  # time of the newest record
    records: int
    partitions: dict[str, int]  # end of each journal, by stream/partition
    continued: int  # records that an interrupted restore had written
    reactions_again: bool  # all reactions are sent again, and dropped by their receivers
    keys: int
    unopened_keys: dict[str, str]  # tenant → why its key does not open here
    missing_objects: list[str]


class Allowed(Struct, frozen=True, kw_only=True):
    """Parts that the operator allows to be missing."""

    keys: bool = False
    objects: bool = False


class Installation(Protocol):
    """The installation that is restored into."""

    @property
    def log(self) -> OperatedLog: ...

    @property
    def list_objects(self) -> ListObjects | None: ...

    async def rows_in(self) -> str | None:
        """Return the name of a schema of the database that has rows of another log."""

    async def raise_levels(self, levels: Mapping[str, int]) -> None: ...


@dataclass(frozen=True)
class Checked:
    """A backup of which everything was read and verified, up to a cut."""

    backup: Backup
    cut: Cut
    tallies: Sequence[PartitionReport]
    within: Manifest | None  # the newest that the cut has as a whole
    cut_ms: Ms
    audit_end: int
    levels: Mapping[str, int]  # of each stream at the cut

    @property
    def nonce(self) -> str:
        """The nonce of the operator's claims, by which this very restore is recognised."""
        ends = msgspec.json.encode(sorted(self.cut.items()))
        return f"restore/{sha256(self.backup.name.encode() + ends).hexdigest()[:32]}"

    def records(self, stream: str) -> Iterator[Record]:
        for record in self.backup.records(stream):
            if record.offset < self.end(stream, record.partition):
                yield record

    def end(self, stream: str, partition: int) -> int:
        if stream == AUDIT_NAME:
            return self.audit_end if partition == AUDIT_PARTITION else 0
        return self.cut[f"{stream}/{partition}"]


def check(folder: BackupFolder, until_ms: Ms | None) -> Checked:
    """Read and verify a whole backup, and choose the cut. Raises LocalError."""
    backup = folder.open()
    if backup is None:
        raise LocalError(f"{folder.path} has no backup", "make one with `tunery backup`")
    newest = backup.newest
    backup.check_files()
    cut = {name: newest.end(name).offset for name in JOURNALS}
    audit_end, cut_ms = newest.audit_end, newest.cut_ms
    if until_ms is not None:
        if until_ms > newest.cut_ms:
            raise LocalError(
                f"the backup ends at {newest.cut_ms} ms since 1970, which is before --until",
                "leave --until away to restore all of it",
            )
        cut = shortened_cut(cut, until_ms, lambda: _marks(backup))
        audit = (each for each in backup.records(AUDIT_NAME) if each.timestamp > until_ms)
        audit_end = next((each.offset for each in audit), audit_end)
        cut_ms = until_ms
    scans = _verified(backup, cut)
    tallies = [scan.tally for scan in scans]
    if until_ms is None:
        _compare_heads(newest, tallies)
    levels: dict[str, int] = {}
    for scan in scans:
        level = scan.position.acceptance.level
        levels[scan.tally.stream] = max(level, levels.get(scan.tally.stream, level))
    return Checked(backup, cut, tallies, backup.within(cut), cut_ms, audit_end, levels)


def _marks(backup: Backup) -> Iterator[Mark]:
    for stream in STREAMS:
        for record in backup.records(stream):
            try:
                yield mark_of(stream, record)
            except Undecodable as error:
                name = f"{stream}/{record.partition} at offset {record.offset}"
                raise LocalError(f"{name} cannot be read: {error}", DAMAGED) from error


def _verified(backup: Backup, cut: Cut) -> list[PartitionScan]:
    """Verify all journals up to the cut, each by itself and all together. Raises LocalError."""
    scans = {
        f"{name}/{number}": PartitionScan(stream, number)
        for name, stream in STREAMS.items()
        for number in range(PARTITIONS)
    }
    for stream in STREAMS:
        for number, group in groupby(backup.records(stream), key=lambda record: record.partition):
            name = f"{stream}/{number}"
            scans[name].take(record for record in group if record.offset < cut[name])
    tallies = [scan.tally for scan in scans.values()]
    for tally in tallies:
        if tally.bad is not None:
            where = f"{tally.name} at offset {tally.bad.offset}"
            raise LocalError(f"{where}: {tally.bad.why}", DAMAGED)
        if tally.end != cut[tally.name]:
            raise LocalError(
                f"{tally.name} ends at {tally.end}, and the manifest says {cut[tally.name]}",
                DAMAGED,
            )
    if missing := list(missing_causes(tallies)):
        raise LocalError(
            "the journals of this backup do not fit together:\n  " + "\n  ".join(missing), DAMAGED
        )
    return list(scans.values())


def _compare_heads(newest: Manifest, tallies: Iterable[PartitionReport]) -> None:
    for tally in tallies:
        head = newest.end(tally.name).acceptance.prev.hex()
        if tally.head != head:
            raise LocalError(
                f"{tally.name} has the head hash {tally.head}, and the manifest says {head}",
                DAMAGED,
            )


# --- the installation -----------------------------------------------------------------------------


async def survey(
    checked: Checked, target: Installation, roots: Path, allowed: Allowed
) -> tuple[dict[str, str], list[str]]:
    """Compare the backup with the installation, which must be empty; change nothing.

    Returns the keys that do not open, and the objects that are missing. Raises LocalError where
    that was not allowed.
    """
    for stream in STREAMS.values():
        if await target.log.members(f"tunery.{stream.name}.owner"):
            raise LocalError(f"the owner of {stream.name} is running", STOP)
    if (schema := await target.rows_in()) is not None:
        raise LocalError(
            f"PostgreSQL has rows in the schema {schema}, computed from another log",
            "restore into an empty database: drop this one, then `tunery postgres prepare`; rows "
            "are computed again from the log",
        )
    folder = checked.backup.folder
    unopened = unopened_keys(folder, roots)
    if unopened and not allowed.keys:
        tenant, why = next(iter(unopened.items()))
        raise LocalError(
            f"{len(unopened)} keys of the backup do not open with the root keys in {roots}; that "
            f"of {tenant}: {why}",
            "put the root keys of the old installation there (they are not in a backup), or go on "
            "without what these keys encrypt: --without-keys",
        )
    return unopened, await _missing_objects(checked, target, allowed)


async def _missing_objects(checked: Checked, target: Installation, allowed: Allowed) -> list[str]:
    if checked.within is None or checked.within.inventory is None or target.list_objects is None:
        return []
    expected = checked.backup.inventory(checked.within)
    missing = await missing_objects(expected, target.list_objects)
    if missing and not allowed.objects:
        named = "\n  ".join(missing[:NAMED_MAX])
        more = f"\n  and {len(missing) - NAMED_MAX} more" if len(missing) > NAMED_MAX else ""
        raise LocalError(
            f"object storage lacks {len(missing)} objects of the backup:\n  {named}{more}",
            "copy them back, or go on without them: --without-objects",
        )
    return missing


async def restore(
    checked: Checked,
    target: Installation,
    keystore: Path,
    roots: Path,
    allowed: Allowed,
    say: Callable[[str], None],
) -> RestoreReport:
    """Restore into an empty installation, whose services do not run. May be killed and run again.

    Claims come last: only a partition with its claim is a restored one. Raises LocalError.
    """
    unopened, missing = await survey(checked, target, roots, allowed)
    log = target.log
    await log.create(TOPICS, PARTITIONS)
    there = {name: await _present(checked, log, name) for name in (*STREAMS, AUDIT_NAME)}
    keys = restore_keys(checked.backup.folder, keystore)
    if any(level > FIRST_LEVEL for level in checked.levels.values()):
        await target.raise_levels(checked.levels)
    for name, held in there.items():
        say(f"{name}: restoring")
        absent = (
            record
            for record in checked.records(name)
            if record.offset >= held[record.partition].end
        )
        await append_records(log, _topic(name), name, absent)
    await _set_positions(checked, log)
    for tally in checked.tallies:
        if not there[tally.stream][tally.partition].claimed:
            await claim_restored(log, STREAMS[tally.stream], tally, checked.nonce)
    return report(checked, unopened, missing, keys, continued=_count(there))


def report(
    checked: Checked,
    unopened: dict[str, str],
    missing: list[str],
    keys: int,
    continued: int = 0,
) -> RestoreReport:
    """Return the report of a restore, or of a check that has written nothing."""
    return RestoreReport(
        cut_ms=checked.cut_ms,
        records=sum(tally.records for tally in checked.tallies),
        partitions=dict(checked.cut),
        continued=continued,
        reactions_again=not (checked.within and checked.within.positions),
        keys=keys,
        unopened_keys=unopened,
        missing_objects=missing,
    )


class Held(Struct, frozen=True):
    """Part of the backup that a partition of the installation holds."""

    end: int
    claimed: bool  # the claim of this restore is behind it


def _count(there: Mapping[str, Mapping[int, Held]]) -> int:
    return sum(held.end for partitions in there.values() for held in partitions.values())


async def _present(checked: Checked, log: OperatedLog, name: str) -> dict[int, Held]:
    """Compare what is there with the backup. Raises LocalError for records that are not of it."""
    topic = _topic(name)
    bounds = {number: await log.bounds(topic, number) for number in range(PARTITIONS)}
    values: dict[int, list[bytes]] = {number: [] for number in bounds}
    async for records in topic_records(log, topic, name, bounds):
        for record in records:
            values[record.partition].append(_digest(record))
            if record.offset == checked.end(name, record.partition) and _is_ours(checked, record):
                values[record.partition][-1] = b""
    for record in checked.records(name):
        held = values[record.partition]
        if record.offset < len(held) and held[record.offset] != _digest(record):
            raise _not_empty(name, record.partition, bounds)
    there = {}
    for number, held in values.items():
        end = checked.end(name, number)
        claimed = len(held) == end + 1 and held[-1] == b""
        if bounds[number][0] or len(held) > end + claimed:
            raise _not_empty(name, number, bounds)
        there[number] = Held(len(held) - claimed, claimed)
    return there


def _is_ours(checked: Checked, record: Record) -> bool:
    try:
        claim = decode_record(record.value)
    except Undecodable:
        return False
    return isinstance(claim, Claim) and claim.nonce == checked.nonce


def _digest(record: Record) -> bytes:
    return sha256(record.key + b"\0" + record.value).digest()


def _not_empty(name: str, partition: int, bounds: Mapping[int, tuple[int, int]]) -> LocalError:
    start, end = bounds[partition]
    return LocalError(
        f"{name}/{partition} of this installation holds the records [{start}, {end}), which are "
        "not those of the backup",
        "restore into an empty installation: another --data-dir, or a Kafka without its topics",
    )


def _topic(name: str) -> str:
    return AUDIT.name if name == AUDIT_NAME else STREAMS[name].journal.name


async def _set_positions(checked: Checked, log: OperatedLog) -> None:
    """Set the saved positions of reactions. The others begin anew: receivers drop repeats."""
    saved = checked.within.positions if checked.within else {}
    for stream in STREAMS.values():
        for service in stream.readers:
            commits = commits_of(saved.get(f"{service}/{stream.name}", {}), PARTITIONS)
            await log.commit(positions_of(service, stream), stream.journal.name, commits)
