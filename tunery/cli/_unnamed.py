"""Inventory of object storage against the log: objects that no record names."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct, field

from schemas.dataset import EraseUnnamed
from schemas.streams import PARTITIONS
from schemas.topics import DATASET, STREAMS
from schemas.units import Ms
from tunery.cli.backup.surroundings import ListObjects
from tunery.cli.journal import scan
from tunery.local.errors import LocalError
from tunery.platform.blobs.encrypted import SUFFIX
from tunery.runtime.bus.abstract import Log, Record
from tunery.runtime.bus.sender import Sender
from tunery.runtime.tools.inspection import PartitionReport

NAME: Final = re.compile(rb't/[^"\\\s]+')  # key of an object, wherever in a record
PART: Final = re.compile(rb'"part_id":"([^"]+)"')
ERASING: Final = re.compile(rb'"type":"(EraseUnnamed|UnnamedDiscarded)[.]')
KEPT: Final = frozenset(
    {"exports"}
)  # kinds of objects that are books: nothing on the log names them
COMMAND_BLOBS_MAX: Final = 500
ALL: Final = tuple(range(PARTITIONS))


class UnnamedObject(Struct, frozen=True):
    """An object that no record of the log names."""

    key: str
    bytes: int
    stored_at: Ms  # by the clock of the storage

    @property
    def tenant(self) -> str:
        return self.key.split("/")[1]


class Unnamed(Struct, kw_only=True):
    """Result of an inventory."""

    before: Ms  # objects that were stored at this time or later were not looked at
    objects: list[UnnamedObject] = field(default_factory=list)
    #: of tenants that the log does not know: they are another installation's, and never erased
    foreign: list[UnnamedObject] = field(default_factory=list)

    @property
    def kinds(self) -> dict[str, list[UnnamedObject]]:
        """Objects by the kind that their key has."""
        kinds = defaultdict[str, list[UnnamedObject]](list)
        for each in self.objects:
            kinds[each.key.split("/")[2]].append(each)
        return dict(sorted(kinds.items()))


async def find_unnamed(log: Log, list_objects: ListObjects, before: Ms) -> Unnamed:
    """List tenants' objects that were stored before a time, and that the whole log does not name.

    Objects are listed first: what is stored and named meanwhile is found on the log. Raises
    LocalError where a journal is not complete and sound, BusError, BlobsUnavailable.
    """
    left: dict[str, UnnamedObject] = {}
    async for key, size, stored_at in list_objects():
        name = key.removesuffix(SUFFIX)
        of_tenant = name.startswith("t/") and name.count("/") > 2
        if of_tenant and name.split("/")[2] not in KEPT and stored_at < before:
            left[name] = UnnamedObject(name, size, stored_at)
    parts = {name.rsplit("/", 1)[1]: name for name in left if name.split("/")[2] == "uploads"}
    tenants: set[str] = set()

    def take(records: Iterable[Record]) -> None:
        for record in records:
            tenants.add(record.key.decode(errors="replace"))
            for name in _names(record.value, parts):
                left.pop(name, None)

    reports: list[PartitionReport] = []
    for stream in STREAMS.values():
        reports += await scan.walk(log, stream, await scan.bounds_of(log, stream, ALL), take)
        topic = stream.commands.name  # what was sent and is not decided yet
        bounds = {number: await log.bounds(topic, number) for number in ALL}
        async for records in scan.topic_records(log, topic, f"{stream.name} (commands)", bounds):
            take(records)
    _refuse_incomplete(reports)
    unnamed = Unnamed(before=before)
    for each in left.values():
        (unnamed.objects if each.tenant in tenants else unnamed.foreign).append(each)
    return unnamed


def _names(value: bytes, parts: dict[str, str]) -> Iterator[str]:
    """Keys in the bytes of a record, those of parts of uploads by their ids.

    Earlier decisions to erase do not count: what they left because it was stored again may go now.
    """
    if ERASING.search(value):
        return
    for name in NAME.findall(value):
        yield name.decode(errors="replace")
    for part in PART.findall(value):
        yield parts.get(part.decode(errors="replace"), "")


def _refuse_incomplete(reports: list[PartitionReport]) -> None:
    """Raises LocalError: what is missing on the log might have named any object."""
    for report in reports:
        if report.bad is not None:
            raise LocalError(
                "the log is not complete, so nothing can be said to be unnamed: "
                f"{report.name}: {report.bad.why}",
                "see `tunery journal verify`",
            )


async def erase_unnamed(sender: Sender, unnamed: Unnamed) -> int:
    """Send the decision about all objects of known tenants; return the number of commands."""
    by_tenant = defaultdict[str, list[str]](list)
    for each in unnamed.objects:
        by_tenant[each.tenant].append(each.key)
    commands = 0
    for tenant, keys in sorted(by_tenant.items()):
        for start in range(0, len(keys), COMMAND_BLOBS_MAX):
            blobs = tuple(keys[start : start + COMMAND_BLOBS_MAX])
            command = EraseUnnamed(blobs=blobs, before=unnamed.before)
            await sender.send(DATASET, tenant, tenant, command)
            commands += 1
    return commands
