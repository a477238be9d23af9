"""Policies of confined processes."""

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final, Literal, TypeAlias

import tunery

# Libraries, time zones and names of users. Not /etc as a whole: it has keys and passwords.
SYSTEM: Final = (
    *("/usr", "/lib", "/lib64", "/bin", "/sbin", "/proc"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime"),
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/ssl/openssl.cnf"),
    *("/sys/devices", "/sys/class", "/sys/bus", "/sys/module", "/sys/fs/cgroup", "/sys/kernel/mm"),
    *("/etc/OpenCL", "/etc/vulkan", "/etc/alternatives", "/opt/rocm", "/opt/nvidia"),
)
DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
ACCELERATORS: Final = ("nvidia*", "kfd", "dri")  # in /dev
# Folders that the operator names; the last one is for nothing else.
OF_OPERATOR: Final = ("LD_LIBRARY_PATH", "PYTHONPATH", "TUNERY_CONFINE_READ")
OURS: Final = ("tunery", "services", "schemas")
FILES_MAX: Final = 4_096  # descriptors
Network: TypeAlias = Literal["none", "loopback", "fabric"]


@dataclass(frozen=True, kw_only=True)
class ConfinementPolicy:
    """Rights of a confined process; all else is refused."""

    read: tuple[str, ...] = ()  # files and folders that it may read, with all below
    # folders in which it may also write; neither links, nor sockets, nor programs
    write: tuple[str, ...] = ()
    # folders in which it may also make symbolic links, which no service must follow
    links: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()  # folders in which it may listen at sockets; empty: it opens none
    devices: tuple[str, ...] = DEVICES  # files and folders of devices
    # whether it computes on the machine's accelerators: their driver names the threads of the
    # process, and opens sockets, which cannot connect
    accelerators: bool = False
    # "none"; "loopback": the one of `namespaces`, whose processes reach only each other; "fabric":
    # TCP to the ports that machines give to connections (`enter.free_ports`), and to no others.
    # Without `namespaces`, loopback is restricted as fabric is
    network: Network = "none"
    # descriptors of namespaces that it shares (`confined.shared_namespaces`)
    namespaces: tuple[int, ...] = ()
    processes: bool = False  # whether it may start others
    memory_bytes_max: int | None = None  # limit of private writable memory; None: unlimited
    file_bytes_max: int | None = None  # limit of each file that it writes; None: unlimited
    cpu_s_max: int | None = None  # processor time of all its threads; None: its caller ends it
    limits: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        chosen = {
            "DATA": self.memory_bytes_max,
            "FSIZE": self.file_bytes_max,
            "CPU": self.cpu_s_max,
        }
        limits = {name: most for name, most in chosen.items() if most is not None}
        # No core dumps: they would hold tenants' rows.
        object.__setattr__(self, "limits", {**limits, "NOFILE": FILES_MAX, "CORE": 0})

    def covers(self, other: "ConfinementPolicy") -> bool:
        """Return whether another policy's paths are all within the paths of this one."""
        writable = tuple(map(Path, self.write))
        readable = (*writable, *map(Path, self.read))
        return all(_is_below(path, readable) for path in other.read) and all(
            _is_below(path, writable) for path in other.write
        )


@cache
def interpreter() -> tuple[str, ...]:
    """Return the paths that this interpreter reads: the system's libraries, Python's, and ours."""
    added = [os.environ.get(name, "") for name in OF_OPERATOR]
    named = {str(Path(path).absolute()) for paths in added for path in paths.split(":") if path}
    paths = {*SYSTEM, sys.prefix, sys.base_prefix, *named}
    return tuple(sorted(paths | {f"{import_folder()}/{name}" for name in OURS}))


def import_folder() -> str:
    """The folder in which the interpreter looks for our packages; of its files it sees names."""
    return str(Path(tunery.__path__[0]).parent)


def accelerator_devices() -> tuple[str, ...]:
    """Files of the accelerators of this machine."""
    return tuple(str(path) for name in ACCELERATORS for path in Path("/dev").glob(name))


def with_links(folders: Iterable[Path]) -> tuple[str, ...]:
    """Folders, and the files outside that symbolic links in them lead to.

    A folder of a model is full of links where a cache keeps files by their content.
    """
    paths: set[str] = set()
    for folder in folders:
        paths.add(str(folder))
        if folder.is_dir():
            paths |= {str(path.resolve()) for path in folder.rglob("*") if path.is_symlink()}
    return tuple(sorted(paths))


def _is_below(path: str, folders: Iterable[Path]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)
