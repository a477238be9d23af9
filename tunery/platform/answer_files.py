"""Spool files with token counts of inference that are not on the log yet.

An engine writes them (`services.engine.meter`), and sends its own. The process of a replica has no
log: its agent sends what it has closed, and closes what a process has left.
"""

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from schemas.answers import NUMBERED_ANSWERS, USES_MAX, AnswerUse, CountAnswers
from schemas.envelope import Source
from schemas.topics import ACCOUNT
from tunery.runtime.bus.sender import Sender
from tunery.runtime.watchdog import beat

SUFFIX: Final = ".jsonl"
METER: Final = "meter"  # the file with the random name of this folder's counts


class SpoolLine(Struct, frozen=True, array_like=True):
    """Usage of one answer during the seconds that its spool file covers."""

    answer: int  # number of the answer within this process
    tenant: str
    use: AnswerUse


def spool_files(folder: Path) -> list[Path]:
    """Files of a folder, the oldest first; the newest one may still be written to."""
    return sorted(folder.glob(f"*{SUFFIX}"))


def open_spool(folder: Path, number: int) -> int:
    """Create the file of this number, and return its descriptor. Raises OSError."""
    path = folder / f"{number:012}{SUFFIX}"
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
    sync_folder(folder)
    return file


def close_left(folder: Path) -> None:
    """Close the newest file of a folder without a writer. Raises OSError.

    The next one exists then, so that no number comes back.
    """
    files = spool_files(folder)
    if files and files[-1].stat().st_size > 0:
        os.close(open_spool(folder, number_of(files[-1]) + 1))


async def send_closed(
    folder: Path, closed: Sequence[Path], sender: Sender, only_of: str | None = None
) -> None:
    """Send closed files to the log, and delete each that is there.

    only_of: the tenant that they may count for; None: any.
    When that is in doubt they are sent again, and their owner drops what it has: each command says
    which file it comes from, and its position in it.
    Raises Unavailable, AppendUnknown, TooLarge; OSError, ValueError for files of another kind.
    """
    if not closed:
        return
    name = (folder / METER).read_text(encoding="ascii")
    for path in closed:
        for index, (tenant, command) in enumerate(commands_of(path)):
            beat("working")
            if only_of not in (None, tenant):
                continue
            source = Source(f"{NUMBERED_ANSWERS}{name}", 0, 0, number_of(path), index)
            await sender.send(ACCOUNT, tenant, tenant, command, source=source)
        path.unlink()


def number_of(path: Path) -> int:
    return int(path.stem)


def commands_of(path: Path) -> Iterator[tuple[str, CountAnswers]]:
    """The commands of a closed file with their tenants, always in the same order."""
    for tenant, uses in sorted(uses_of(path).items()):
        for start in range(0, len(uses), USES_MAX):
            yield tenant, CountAnswers(uses=tuple(uses[start : start + USES_MAX]))


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
        tenants[tenant].append(sum_of(uses[tenant, key_id, model]))
    return dict(tenants)


def counts_of(use: AnswerUse) -> dict[str, int]:
    """The numbers of a use by their names."""
    return {name: count for name, count in asdict(use).items() if isinstance(count, int)}


def sync_folder(folder: Path) -> None:
    """Return when the names of a folder's files are on the disk. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sum_of(uses: Sequence[AnswerUse]) -> AnswerUse:
    """Sum the tokens of several answers of one model to one key."""
    counts = [counts_of(use) for use in uses]
    summed = {name: sum(count[name] for count in counts) for name in counts[0]}
    return AnswerUse(key_id=uses[0].key_id, model=uses[0].model, **summed)
