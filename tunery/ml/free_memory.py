"""Memory that the machine could still give to a process. Never imports torch."""

import ctypes
from contextlib import suppress
from pathlib import Path
from typing import Final

MEMINFO: Final = Path("/proc/meminfo")
GROUP: Final = Path("/sys/fs/cgroup")  # of a container, as it sees itself
KIB: Final = 1024
M_ARENA_MAX: Final = -8  # of glibc's malloc.h
M_MMAP_THRESHOLD: Final = -3
MAPPED_BYTES_MIN: Final = 1_000_000


def free_bytes(meminfo: Path = MEMINFO, group: Path = GROUP) -> int:
    """Memory without swapping, within the limit of the group; 0: the kernel does not say."""
    free = _of_machine(meminfo, "MemAvailable")
    try:
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
    except (OSError, ValueError):  # there is no group, or it says "max"
        return free
    return max(0, min(free, limit - used))


def share_heap() -> None:
    """Let threads that have no memory yet take it from one heap.

    glibc gives each a heap of its own, which keeps what is freed for that thread: threads that work
    in turn would have the activations of a step once each.
    """
    with suppress(AttributeError):  # another library than glibc
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def map_large_blocks() -> None:
    """Have large blocks returned to the machine as they are freed.

    glibc keeps those of up to 32 MiB: layers that ranks gather and drop left a third more than they
    need. Alone a step of a small model would take 1.4 times as long.
    """
    with suppress(AttributeError):  # another library than glibc
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES_MIN)


def return_freed() -> None:
    """Return freed memory to the machine, which glibc keeps for this process."""
    with suppress(AttributeError):  # another library than glibc
        ctypes.CDLL(None).malloc_trim(0)


def _of_machine(meminfo: Path, field: str) -> int:
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return 0
    sizes = dict(line.split(":", 1) for line in lines if ":" in line)
    return KIB * int(sizes.get(field, "0 kB").split()[0])
