"""Landlock: the kernel refuses files and ports that no rule names, and signals to others.

See `man 7 landlock` and `Documentation/userspace-api/landlock.rst` of the kernel. Rules hold for a
process and all that it starts. It may not trace processes outside either: their `/proc/PID/environ`
and memory are out of reach.
"""

import os
import stat
import struct
from collections.abc import Iterable
from typing import Final

from tunery.confinement import libc

CREATE_RULESET: Final = 444  # the same number on all architectures
ADD_RULE: Final = 445
RESTRICT_SELF: Final = 446
ASK_VERSION: Final = 1
PATH_BENEATH, NETWORK_PORT = 1, 2

EXECUTE: Final = 1 << 0
WRITE_FILE: Final = 1 << 1
READ_FILE: Final = 1 << 2
READ_DIR: Final = 1 << 3
REMOVE_DIR: Final = 1 << 4
REMOVE_FILE: Final = 1 << 5
MAKE_DIR: Final = 1 << 7
MAKE_REG: Final = 1 << 8
MAKE_SOCK: Final = 1 << 9
MAKE_SYM: Final = 1 << 12
REFER: Final = 1 << 13  # from version 2 of the interface
TRUNCATE: Final = 1 << 14  # from 3
IOCTL_DEV: Final = 1 << 15  # from 5
FILE_RIGHTS: Final = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
NETWORK_RIGHTS: Final = 0b11  # bind and connect by TCP, from 4
NETWORK_VERSION: Final = 4
ABSTRACT_SOCKETS, SIGNALS = 0b01, 0b10  # scopes, from 6
OF_FILES: Final = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV

READ: Final = EXECUTE | READ_FILE | READ_DIR
LIST: Final = READ_DIR
# No symbolic links, sockets, pipes and devices: the service that takes the files expects none.
WRITE: Final = sum(
    (WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE, MAKE_DIR, MAKE_REG, REFER, TRUNCATE)
)
DEVICE: Final = READ_FILE | WRITE_FILE | READ_DIR | TRUNCATE | IOCTL_DEV


def version() -> int:
    """Version of the interface that the kernel has. Raises OSError where it has none."""
    return libc.syscall("landlock", CREATE_RULESET, 0, 0, ASK_VERSION)


def restrict(
    rules: Iterable[tuple[str, int]],
    abi: int,
    *,
    ports: Iterable[int] | None = (),
    scopes: int = ABSTRACT_SOCKETS | SIGNALS,
) -> None:
    """Refuse this process all files that no rule names, and signals to others. Raises OSError.

    rules: a path and the rights to it and to all below; a path that is missing is left out
    abi: version of the interface, see `version`
    ports: TCP ports to which it may connect and at which it may listen; None: all
    scopes: kinds of processes outside that are refused
    """
    handled = max((known, rights) for known, rights in FILE_RIGHTS.items() if known <= abi)[1]
    has_network = abi >= NETWORK_VERSION and ports is not None
    attributes = struct.pack(
        "<QQQ", handled, NETWORK_RIGHTS if has_network else 0, scopes if abi >= 6 else 0
    )[: 24 if abi >= 6 else 16 if abi >= NETWORK_VERSION else 8]
    ruleset = libc.syscall("landlock", CREATE_RULESET, attributes, len(attributes), 0)
    try:
        for path, rights in rules:
            _add_rule(ruleset, path, rights & handled)
        for port in ports if has_network and ports is not None else ():
            rule = struct.pack("<QQ", NETWORK_RIGHTS, port)
            libc.syscall("landlock", ADD_RULE, ruleset, NETWORK_PORT, rule, 0)
        libc.syscall("landlock", RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _add_rule(ruleset: int, path: str, rights: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return  # the process could not open it either
    try:
        if not stat.S_ISDIR(os.fstat(opened).st_mode):
            rights &= OF_FILES
        rule = struct.pack("<Qi", rights, opened)
        libc.syscall("landlock", ADD_RULE, ruleset, PATH_BENEATH, rule, 0)
    finally:
        os.close(opened)
