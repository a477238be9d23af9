"""A user, a network and an IPC namespace of its own, and no capabilities.

The network of a new namespace has no interface that is up. Inside, the process has the same numbers
of user and group as outside; for the kernel it is another user's namespace, whose processes may not
trace those outside.
"""

import os
import struct
from pathlib import Path
from typing import Final

from tunery.confinement import libc

NEW_IPC: Final = 0x0800_0000
NEW_USER: Final = 0x1000_0000
NEW_NETWORK: Final = 0x4000_0000
BOUNDING_DROP: Final = 24
AMBIENT, AMBIENT_CLEAR_ALL = 47, 4
CAPABILITIES_VERSION: Final = 0x2008_0522
CAPSET: Final = {"x86_64": 126, "aarch64": 91}
LAST_CAPABILITY: Final = Path("/proc/sys/kernel/cap_last_cap")


def separate() -> None:
    """Enter new namespaces. Raises OSError where the machine refuses them."""
    user, group = os.getuid(), os.getgid()
    libc.unshare(NEW_USER | NEW_NETWORK | NEW_IPC)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def drop_capabilities() -> None:
    """Keep no capability, also after another program was started. Raises OSError."""
    libc.prctl("ambient capabilities", AMBIENT, AMBIENT_CLEAR_ALL)
    status = Path("/proc/self/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    if int(fields["CapEff"], 16):
        for number in range(int(LAST_CAPABILITY.read_text()) + 1):
            libc.prctl("capabilities", BOUNDING_DROP, number)
    header, none = struct.pack("<Ii", CAPABILITIES_VERSION, 0), bytes(24)
    libc.syscall("capset", CAPSET[os.uname().machine], header, none)
