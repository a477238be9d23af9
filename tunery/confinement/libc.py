"""Calls of the C library and the kernel that Python's standard library does not have."""

import ctypes
import os
import signal
from typing import Final

PR_SET_NO_NEW_PRIVS: Final = 38
PR_SET_PDEATHSIG: Final = 1

_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def syscall(name: str, number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char]) -> int:
    """Call the kernel; pointers are bytes or buffers. Raises OSError, which names the call."""
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    return _checked(name, _LIBC.syscall(ctypes.c_long(number), *words))


def prctl(name: str, option: int, *arguments: int) -> int:
    """Change a property of this process. Raises OSError."""
    words = [ctypes.c_ulong(word) for word in (*arguments, 0, 0, 0, 0)[:4]]
    return _checked(name, _LIBC.prctl(ctypes.c_int(option), *words))


def forbid_new_privileges() -> None:
    """Set no_new_privs: programs that this process becomes or starts gain no rights."""
    prctl("no_new_privs", PR_SET_NO_NEW_PRIVS, 1)


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, or at once if it has. Raises OSError.

    The kernel forgets it where a process changes its rights: call it after that.
    """
    prctl("parent's death", PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def unshare(flags: int) -> None:
    """Leave namespaces for new ones. Raises OSError."""
    _checked("unshare", _LIBC.unshare(ctypes.c_int(flags)))


def setns(descriptor: int) -> None:
    """Enter the namespace of a descriptor. Raises OSError."""
    _checked("setns", _LIBC.setns(ctypes.c_int(descriptor), ctypes.c_int(0)))


def mount(source: str, target: str, kind: str, options: str) -> None:
    """Mount a file system. Raises OSError."""
    words = [word.encode() for word in (source, target, kind)]
    _checked("mount", _LIBC.mount(*words, ctypes.c_ulong(0), options.encode()))


def _checked(name: str, returned: int) -> int:
    if returned < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return returned
