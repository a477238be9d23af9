"""A separate user, network and IPC namespace, and no capabilities.

The network of a new namespace has no interface that is up. Inside, the process has the same numbers
of user and group as outside; for the kernel it is another user's namespace, whose processes may not
trace those outside.

Ranks of a training share theirs, which also has `/dev/shm` to itself: a process that ends at once
makes them (`confined.shared_namespaces`), descriptors keep them, and each rank enters by these.
"""

import fcntl
import os
import socket
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tunery.confinement import libc

NEW_MOUNTS: Final = 0x0002_0000
NEW_IPC: Final = 0x0800_0000
NEW_USER: Final = 0x1000_0000
NEW_NETWORK: Final = 0x4000_0000
SHARED: Final = ("user", "net", "ipc", "mnt")  # the user's first: its rights are for the others
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108  # a file system of the lease
SET_INTERFACE_FLAGS: Final = 0x8914  # SIOCSIFFLAGS
UP_AND_RUNNING: Final = 0x41
BOUNDING_DROP: Final = 24
AMBIENT, AMBIENT_CLEAR_ALL = 47, 4
CAPABILITIES_VERSION: Final = 0x2008_0522
CAPSET: Final = {"x86_64": 126, "aarch64": 91}
LAST_CAPABILITY: Final = Path("/proc/sys/kernel/cap_last_cap")


def separate(flags: int = NEW_NETWORK | NEW_IPC) -> None:
    """Enter a new user's namespace, and others. Raises OSError where the machine refuses them."""
    user, group = os.getuid(), os.getgid()
    libc.unshare(NEW_USER | flags)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def hold(network: str) -> None:
    """Create shared namespaces, and hold them until standard input ends."""
    own_network = NEW_NETWORK if network == "loopback" else 0
    try:
        separate(own_network | NEW_IPC | NEW_MOUNTS)
        libc.mount("tmpfs", SHARED_MEMORY, "tmpfs", "mode=0700")
        if own_network:
            raise_loopback()
    except OSError as error:
        print(error.strerror, flush=True)
        return
    print("made", flush=True)
    sys.stdin.read()


def raise_loopback() -> None:
    """Set the interface `lo` of this network up. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", UP_AND_RUNNING)
        fcntl.ioctl(any_socket, SET_INTERFACE_FLAGS, request)


def enter(namespaces: Sequence[int]) -> None:
    """Enter namespaces by their descriptors, and close these. Raises OSError."""
    folder = os.getcwd()  # noqa: PTH109  # another mount namespace begins at its root
    for descriptor in namespaces:
        libc.setns(descriptor)
        os.close(descriptor)
    os.chdir(folder)


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
