"""Processes of this machine: records on disk, whether one is alive, ending what is left."""

import json
import os
import signal
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

ORPHAN_STOP_MS_MAX: Final = 15_000
POLL_MS: Final = 50


@dataclass(frozen=True)
class ProcessRecord:
    """Identifies a process, also after its pid was reused: boot, pid and start tick."""

    name: str
    pid: int
    start_ticks: int
    boot_id: str

    def is_alive(self) -> bool:
        return self.boot_id == boot_id() and start_ticks(self.pid) == self.start_ticks


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def own_pid() -> int:
    return os.getpid()


def start_ticks(pid: int) -> int | None:
    """Clock ticks after boot at which `pid` started; None when there is none, or it is a zombie."""
    fields = _stat(pid)
    if fields is None or fields[0] in {"Z", "X"}:
        return None
    return int(fields[19])


def parent(pid: int) -> int | None:
    fields = _stat(pid)
    return None if fields is None else int(fields[1])


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the third on (the second may hold blanks and brackets)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


def record(name: str, pid: int) -> ProcessRecord | None:
    """A record of a running process; None when it has ended."""
    ticks = start_ticks(pid)
    return None if ticks is None else ProcessRecord(name, pid, ticks, boot_id())


def write_record(folder: Path, entry: ProcessRecord) -> None:
    part = folder / f"{entry.name}.part"
    part.write_text(json.dumps(asdict(entry)), encoding="utf-8")
    part.replace(folder / f"{entry.name}.pid")


def read_record(file: Path) -> ProcessRecord | None:
    """Read a record; None when it is missing or unreadable."""
    try:
        return ProcessRecord(**json.loads(file.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def descendants(pid: int) -> list[int]:
    """All processes below `pid`, parents first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (above := parent(int(entry.name))) is not None:
            children.setdefault(above, []).append(int(entry.name))
    pids: list[int] = []
    queue = [pid]
    while queue:
        below = children.get(queue.pop(0), [])
        pids += below
        queue += below
    return pids


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process, unless it has ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def send_group(leader: int, number: signal.Signals) -> None:
    """Send a signal to the group of a process, and to it, which may not lead the group yet."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
    send(leader, number)


def stop_orphans(folder: Path, names_in_order: tuple[str, ...]) -> list[str]:
    """End processes that an earlier run left alive, in the given order, others first.

    Stale records are removed. Returns the names of those that were alive. Each process has
    ORPHAN_STOP_MS_MAX to end before it is killed.
    """
    records = {path: entry for path in sorted(folder.glob("*.pid")) if (entry := read_record(path))}

    def rank(path: Path) -> int:
        name = records[path].name
        return names_in_order.index(name) if name in names_in_order else -1

    ended = []
    for path in sorted(records, key=rank):
        entry = records[path]
        if entry.is_alive() and entry.pid != os.getpid():
            end(entry, ORPHAN_STOP_MS_MAX)
            ended.append(entry.name)
        path.unlink(missing_ok=True)
    return ended


def end(entry: ProcessRecord, wait_ms_max: int) -> None:
    """Send SIGCONT and SIGTERM, then SIGKILL to its group after `wait_ms_max`."""
    send(entry.pid, signal.SIGCONT)
    send(entry.pid, signal.SIGTERM)
    if not await_end(entry, wait_ms_max):
        send_group(entry.pid, signal.SIGKILL)
        await_end(entry, wait_ms_max)


def await_end(entry: ProcessRecord, wait_ms_max: int) -> bool:
    deadline = time.monotonic() + wait_ms_max / 1000
    while entry.is_alive():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_MS / 1000)
    return True
