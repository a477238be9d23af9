"""seccomp: system calls that a confined process has no use for end with an error.

The filter is a program of the kernel's classic BPF, which sees a call's number and arguments. See
`man 2 seccomp`. It names what is refused: which calls the libraries of a training need differs from
one driver to the next. Calls that are newer than this list are refused as unknown to the kernel.
Modes and owners of files stay as they are, and the call succeeds: libraries set them on what
they write, and Landlock lets a process set those of every file of its user.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from tunery.confinement import libc

SET_MODE_FILTER: Final = 1
SYNCHRONIZE_THREADS: Final = 1
KILL_PROCESS: Final = 0x8000_0000
FAIL: Final = 0x0005_0000
ALLOW: Final = 0x7FFF_0000
LOAD, EQUAL, ABOVE, ANY_BIT, RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
NUMBER_AT, ARCHITECTURE_AT = 0, 4
ARGUMENTS_AT: Final = (16, 24, 32)
X32_BIT: Final = 0x4000_0000
NEWEST_CALL: Final = 469  # of Linux 6.17
CLONE_THREAD: Final = 0x1_0000
NEW_NAMESPACES: Final = 0x7E02_0000  # flags of clone
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
NETLINK_ROUTE: Final = 0  # interfaces and their addresses
NO_STREAM: Final = 0b1110  # bits of the types of sockets that SOCK_STREAM does not have
DATAGRAM_BIT: Final = 0b0010  # of SOCK_DGRAM and SOCK_RAW, not of SOCK_STREAM and SOCK_SEQPACKET


class Architecture(NamedTuple):
    """Architecture of a processor, and those of its system call numbers that are its own."""

    audit: int
    seccomp: int
    socket: int
    connect: int
    clone: int
    kill: int
    tgkill: int
    prlimit: int
    forks: tuple[int, ...]
    ignored: tuple[int, ...]
    refused: tuple[int, ...]


X86_64: Final = Architecture(
    audit=0xC000_003E,
    seccomp=317,
    socket=41,
    connect=42,
    clone=56,
    kill=62,
    tgkill=234,
    prlimit=302,
    forks=(57, 58),  # fork, vfork
    ignored=(90, 91, 268, 92, 93, 94, 260),  # chmod, fchmod, fchmodat, chown … fchownat
    refused=(
        *(101, 310, 311, 312),  # ptrace, process_vm_readv, process_vm_writev, kcmp
        *(109, 112),  # setpgid, setsid: it stays in the group that its agent ends
        *(129, 200, 297),  # rt_sigqueueinfo, tkill, rt_tgsigqueueinfo
        *(155, 161, 163, 165, 166, 167, 168, 179),  # pivot_root, chroot, acct, mount … quotactl
        *(103, 159, 164, 169, 170, 171, 172, 173, 227, 305),  # syslog, clocks, reboot, names, ports
        *(175, 176, 246, 313, 320),  # modules, kexec
        *(248, 249, 250),  # keys of the kernel
        *(272, 308),  # unshare, setns
        *(298, 300, 321, 323),  # perf_event_open, fanotify_init, bpf, userfaultfd
        *(133, 259, 303, 304),  # mknod, mknodat, handles of files
        *(76, 188, 189, 190, 197, 198, 199),  # truncate, setxattr … fremovexattr
    ),
)
AARCH64: Final = Architecture(
    audit=0xC000_00B7,
    seccomp=277,
    socket=198,
    connect=203,
    clone=220,
    kill=129,
    tgkill=131,
    prlimit=261,
    forks=(),
    ignored=(52, 53, 54, 55),
    refused=(
        *(117, 270, 271, 272),
        *(154, 157),
        *(138, 130, 240),
        *(41, 51, 89, 40, 39, 224, 225, 60),
        *(116, 171, 170, 142, 161, 162, 112, 266),
        *(105, 106, 104, 273, 294),
        *(217, 218, 219),
        *(97, 268),
        *(241, 262, 280, 282),
        *(33, 264, 265),
        *(45, 5, 6, 7, 14, 15, 16),
    ),
)
# The same everywhere: io_uring, which goes past this filter; pidfd_send_signal, pidfd_getfd; the
# newer calls that mount file systems, and that set attributes of files.
REFUSED_EVERYWHERE: Final = (
    *(425, 426, 427, 424, 438),
    *(428, 429, 430, 431, 432, 433, 442, 467),
    *(463, 466, 469),
)
FCHMODAT2: Final = 452
CLONE3: Final = 435
ARCHITECTURES: Final = {"x86_64": X86_64, "aarch64": AARCH64}


def architecture() -> Architecture:
    """Return the architecture of this machine. Raises OSError if the filter does not support it."""
    machine = os.uname().machine
    if machine not in ARCHITECTURES or struct.calcsize("P") != 8:
        raise OSError(errno.ENOSYS, f"seccomp: no filter is known for {machine}")
    return ARCHITECTURES[machine]


def build(
    known: Architecture,
    *,
    sockets: bool,
    processes: bool,
    unreachable: bool = False,
    streams: bool = False,
    datagrams: bool = False,
    own_pid: int | None = None,
) -> bytes:
    """The filter as a program of BPF.

    sockets: whether sockets of this machine (AF_UNIX) may be opened
    unreachable: whether such sockets may be opened but not connected: CUDA's driver listens at
      one, and fails with error 304 where it cannot
    streams: whether TCP may be used, and addresses of interfaces may be read
    datagrams: whether other types of sockets of IP may be opened too
    processes: whether processes may be started; threads always
    own_pid: the only process that may be signalled; None: Landlock restricts signals
    """
    refuse, unknown, starts = FAIL | errno.EPERM, FAIL | errno.ENOSYS, FAIL | errno.EAGAIN
    done_nothing = FAIL  # with no error
    program = [
        _load(ARCHITECTURE_AT),
        *_unless(EQUAL, known.audit, KILL_PROCESS),
        _load(NUMBER_AT),
        *_when(ABOVE, X32_BIT - 1, KILL_PROCESS),
        *_when(ABOVE, NEWEST_CALL, unknown),
        *_when(EQUAL, CLONE3, unknown),  # its flags are out of sight: libraries then call clone
    ]
    for number in (*known.refused, *REFUSED_EVERYWHERE):
        program += _when(EQUAL, number, refuse)
    for number in (*known.ignored, FCHMODAT2):
        program += _when(EQUAL, number, done_nothing)
    program += _of_call(known.prlimit, [_unless(EQUAL, 0, refuse)])  # 0: its own
    if not processes:
        for number in known.forks:
            program += _when(EQUAL, number, starts)
    checks: list[list[bytes]] = []
    if sockets or streams:
        checks.append(_when(EQUAL, AF_UNIX, ALLOW))
    elif unreachable:
        # Datagrams can name whom they go to; of other types `connect` names it.
        connected = [_load(ARGUMENTS_AT[1]), *_when(ANY_BIT, DATAGRAM_BIT, refuse), _return(ALLOW)]
        checks.append(_where(AF_UNIX, connected))
        program += _when(EQUAL, known.connect, FAIL | errno.ENOENT)  # as without a listener
    if streams:
        of_type = [] if datagrams else _when(ANY_BIT, NO_STREAM, refuse)
        typed = [_load(ARGUMENTS_AT[1]), *of_type, _return(ALLOW)]
        routes = [_load(ARGUMENTS_AT[2]), *_when(EQUAL, NETLINK_ROUTE, ALLOW), _return(refuse)]
        families = {AF_INET: typed, AF_INET6: typed, AF_NETLINK: routes}
        checks += [_where(family, steps) for family, steps in families.items()]
    program += _of_call(known.socket, [*checks, [_return(refuse)]])
    checks = [_when(ANY_BIT, NEW_NAMESPACES, refuse)]
    if not processes:
        checks.append(_unless(ANY_BIT, CLONE_THREAD, starts))
    program += _of_call(known.clone, checks)
    if own_pid is not None:
        for number in (known.kill, known.tgkill):
            program += _of_call(number, [_unless(EQUAL, own_pid, refuse)])
    return b"".join([*program, _return(ALLOW)])


def load(program: bytes, number: int) -> None:
    """Filter the calls of this process, and of all that it starts. Raises OSError.

    number: number of the system call seccomp
    """
    content = ctypes.create_string_buffer(program, len(program))
    pointer = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(content))
    libc.syscall("seccomp", number, SET_MODE_FILTER, SYNCHRONIZE_THREADS, pointer)


def _instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, operand)


def _load(offset: int) -> bytes:
    return _instruction(LOAD, offset)


def _return(outcome: int) -> bytes:
    return _instruction(RETURN, outcome)


def _when(test: int, operand: int, outcome: int) -> list[bytes]:
    """End with an outcome where the loaded word passes a test."""
    return [_instruction(test, operand, 0, 1), _return(outcome)]


def _unless(test: int, operand: int, outcome: int) -> list[bytes]:
    return [_instruction(test, operand, 1, 0), _return(outcome)]


def _of_call(number: int, checks: Sequence[Sequence[bytes]]) -> list[bytes]:
    """Check the first argument of a call."""
    body = [instruction for check in checks for instruction in check]
    return _where(number, [_load(ARGUMENTS_AT[0]), *body, _return(ALLOW)])


def _where(operand: int, steps: Sequence[bytes]) -> list[bytes]:
    """Go through steps, which end, where the loaded word equals an operand."""
    return [_instruction(EQUAL, operand, 0, len(steps)), *steps]
