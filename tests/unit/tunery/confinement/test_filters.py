"""The filter, run by an interpreter of its instructions: also for processors that are not here."""

import struct
from typing import Final

import pytest

from tunery.confinement import filters
from tunery.confinement.filters import AARCH64, ALLOW, FAIL, KILL_PROCESS, X86_64, Architecture

pytestmark = pytest.mark.security

EPERM, EAGAIN, ENOSYS = FAIL | 1, FAIL | 11, FAIL | 38
OWN_PID: Final = 4711


def decide(program: bytes, audit: int, number: int, *arguments: int) -> int:
    """What the kernel does with a call."""
    data = struct.pack("<IIQ6Q", number, audit, 0, *(*arguments, *[0] * 6)[:6])
    steps = list(struct.iter_unpack("<HBBI", program))
    at, word = 0, 0
    while True:
        code, if_true, if_false, operand = steps[at]
        at += 1
        if code == filters.LOAD:
            (word,) = struct.unpack_from("<I", data, operand)
        elif code == filters.RETURN:
            return int(operand)
        else:
            passed = {
                filters.EQUAL: word == operand,
                filters.ABOVE: word > operand,
                filters.ANY_BIT: bool(word & operand),
            }[code]
            at += if_true if passed else if_false


@pytest.mark.parametrize("known", [X86_64, AARCH64])
@pytest.mark.parametrize("processes", [False, True])
def test_security_h1_calls_are_refused_on_both_processors(
    known: Architecture, processes: bool
) -> None:
    program = filters.build(known, sockets=False, processes=processes)
    for number in (*known.refused, *filters.REFUSED_EVERYWHERE, known.socket):
        assert decide(program, known.audit, number) == EPERM
    for number in (*known.ignored, filters.FCHMODAT2):
        assert decide(program, known.audit, number) == FAIL, "no error, and nothing is done"
    assert decide(program, known.audit, known.prlimit, 0) == ALLOW
    assert decide(program, known.audit, known.prlimit, OWN_PID) == EPERM
    started = ALLOW if processes else EAGAIN
    assert [decide(program, known.audit, number) for number in known.forks] == [
        started for _ in known.forks
    ]
    assert decide(program, known.audit, known.clone, 17) == started, "a process"
    assert decide(program, known.audit, known.clone, filters.CLONE_THREAD | 0xF00) == ALLOW
    assert decide(program, known.audit, known.clone, 0x1000_0000 | filters.CLONE_THREAD) == EPERM
    assert decide(program, known.audit, filters.CLONE3) == ENOSYS
    assert decide(program, known.audit, filters.NEWEST_CALL + 1) == ENOSYS
    assert decide(program, known.audit, 0x4000_0001) == KILL_PROCESS
    assert decide(program, 0x4000_0003, 1) == KILL_PROCESS, "calls of 32 bits"
    assert decide(program, known.audit, known.kill, 1) == ALLOW, "Landlock refuses it"


def test_security_h1_without_landlocks_scopes_it_signals_itself_alone() -> None:
    program = filters.build(X86_64, sockets=True, processes=False, own_pid=OWN_PID)
    for number in (X86_64.kill, X86_64.tgkill):
        assert decide(program, X86_64.audit, number, OWN_PID) == ALLOW
        for other in (1, 0, 0xFFFF_FFFF):
            assert decide(program, X86_64.audit, number, other) == EPERM
    assert decide(program, X86_64.audit, X86_64.socket, filters.AF_UNIX) == ALLOW
    for family in (2, 10, 16, 17, 40):
        assert decide(program, X86_64.audit, X86_64.socket, family) == EPERM


@pytest.mark.parametrize("known", [X86_64, AARCH64])
@pytest.mark.parametrize("datagrams", [False, True])
def test_review2_d1_ranks_open_streams_and_read_interfaces(
    known: Architecture, datagrams: bool
) -> None:
    program = filters.build(
        known, sockets=False, processes=False, streams=True, datagrams=datagrams
    )
    flags = 0o2004000  # SOCK_CLOEXEC | SOCK_NONBLOCK
    for family in (filters.AF_INET, filters.AF_INET6):
        assert decide(program, known.audit, known.socket, family, 1 | flags) == ALLOW
        for kind in (2, 3, 5):  # datagrams, raw, SCTP's
            expected = ALLOW if datagrams else EPERM
            assert decide(program, known.audit, known.socket, family, kind | flags) == expected
    assert decide(program, known.audit, known.socket, filters.AF_UNIX, 2) == ALLOW
    assert decide(program, known.audit, known.socket, filters.AF_NETLINK, 3, 0) == ALLOW
    assert decide(program, known.audit, known.socket, filters.AF_NETLINK, 3, 12) == EPERM
    for family in (17, 38, 40):
        assert decide(program, known.audit, known.socket, family, 1) == EPERM


def test_it_is_known_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert filters.architecture() in (X86_64, AARCH64)
    monkeypatch.setattr(filters, "ARCHITECTURES", {})
    with pytest.raises(OSError, match="no filter is known"):
        filters.architecture()
