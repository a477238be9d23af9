"""Counts the processes that the kernel has killed because memory ran out."""

from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
CGROUPS: Final = Path("/sys/fs/cgroup")
COUNTER: Final = "oom_kill"


def count_memory_kills(proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    """Number of such kills so far in this process's control group, or else on the whole machine.

    The kernel counts a process before it kills it. None: neither count can be read.
    """
    try:
        for entry in (proc / "self" / "cgroup").read_text().splitlines():
            if entry.startswith("0::"):  # of version 2; its counts are those of one container
                group = cgroups / entry.removeprefix("0::").lstrip("/")
                count = _read_count(group / "memory.events")
                if count is not None:
                    return count
    except OSError:
        pass  # a kernel without control groups
    return _read_count(proc / "vmstat")


def _read_count(path: Path) -> int | None:
    try:
        for line in path.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == COUNTER:
                return int(value)
    except (OSError, ValueError):
        return None
    return None
