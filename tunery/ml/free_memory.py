"""What the machine has, and could still give to a process. Never imports torch."""

from pathlib import Path
from typing import Final

MEMINFO: Final = Path("/proc/meminfo")
GROUP: Final = Path("/sys/fs/cgroup")  # of a container, as it sees itself
KIB: Final = 1024


def free_bytes(meminfo: Path = MEMINFO, group: Path = GROUP) -> int:
    """Memory without swapping, within the limit of the group; 0: the kernel does not say."""
    free = _of_machine(meminfo, "MemAvailable")
    try:
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
    except (OSError, ValueError):  # there is no group, or it says "max"
        return free
    return max(0, min(free, limit - used))


def machine_bytes(meminfo: Path = MEMINFO, group: Path = GROUP) -> int:
    """All memory, within the limit of the group; 0: the kernel does not say."""
    every = _of_machine(meminfo, "MemTotal")
    try:
        return min(every, int((group / "memory.max").read_text()))
    except (OSError, ValueError):  # as above
        return every


def _of_machine(meminfo: Path, field: str) -> int:
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return 0
    sizes = dict(line.split(":", 1) for line in lines if ":" in line)
    return KIB * int(sizes.get(field, "0 kB").split()[0])
