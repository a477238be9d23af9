"""A control group of the kernel with little memory, where this machine lets its user make one."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import uuid4

MEMBERS: Final = "cgroup.procs"
#: where groups with limits of memory are made, and the file of the limit: versions 1 and 2
KINDS: Final = (
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
    (Path("/sys/fs/cgroup"), "memory.max"),
)
# It takes memory until none is left.
NEIGHBOUR: Final = """\
import pathlib, os, sys
pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
taken = []
while True:
    taken.append(bytes([1]) * 1_000_000)
"""


def kinds_here() -> list[tuple[Path, str]]:
    """The kinds of group that this user can make: at most one."""
    kinds = []
    for parent, limit in KINDS:
        with contextlib.suppress(OSError), _group(parent) as group:
            if (group / limit).is_file():
                kinds.append((parent, limit))
    return kinds[:1]


@contextlib.contextmanager
def _group(parent: Path) -> Iterator[Path]:
    group = parent / f"tunery-test-{uuid4().hex[:8]}"
    group.mkdir()
    try:
        yield group
    finally:
        for pid in (group / MEMBERS).read_text().split():
            os.kill(int(pid), 9)
        while (group / MEMBERS).read_text():
            pass
        group.rmdir()


@contextlib.contextmanager
def memory_group(kind: tuple[Path, str], bytes_max: int) -> Iterator[Path]:
    """A group; see `join`."""
    parent, limit = kind
    with _group(parent) as group:
        (group / limit).write_text(str(bytes_max))
        yield group


def join(group: Path) -> str:
    """Code by which a process joins the group, as the first that the kernel ends there."""
    writes = {str(group / MEMBERS): "str(os.getpid())", "/proc/self/oom_score_adj": "'1000'"}
    return "import os; " + "".join(
        f"open({path!r}, 'w').write({text}); " for path, text in writes.items()
    )


@contextlib.contextmanager
def greedy_neighbour(group: Path) -> Iterator[None]:
    """A process of the group that takes all its memory."""
    argv = [sys.executable, "-c", NEIGHBOUR, str(group / MEMBERS)]
    with subprocess.Popen(argv) as neighbour:
        try:
            yield
        finally:
            neighbour.kill()
