"""Applies a policy to this process, which then becomes the program that it was started for.

`command` of `confined` names its arguments: a policy as JSON, and the program's. It uses the
standard library alone, so that it costs milliseconds. A wall that the machine does not have ends it
with CANNOT_CONFINE where the policy requires it, else the others hold.
"""

import json
import os
import resource
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NoReturn

from tunery.confinement import filters, landlock, libc, namespaces

CANNOT_CONFINE: Final = 78  # EX_CONFIG of sysexits.h
LANDLOCK, SECCOMP, NAMESPACES = "landlock", "seccomp", "namespaces"
# CUDA's driver writes the names of its threads there, and fails with error 304 where it may not.
OWN_THREADS: Final = "/proc/self/task"
PORTS_OF_CONNECTIONS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
ANY_FREE_PORT: Final = 0


def main() -> NoReturn:
    """Confine this process and become the program. Raises OSError when it cannot be started."""
    policy = json.loads(sys.argv[1])
    if policy.get("reports"):
        print(json.dumps(apply(policy)))
        sys.exit()
    confine(policy)
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606  # arguments as a list: no shell is wanted


def confine(policy: dict[str, Any]) -> None:
    """Apply a policy. Raises SystemExit where the machine lacks a wall that it requires."""
    missing = apply(policy)
    for name in sorted(missing.keys() & set(policy["required"])):
        print(f"cannot confine the process: {name}: {missing[name]}", file=sys.stderr)
        sys.exit(CANNOT_CONFINE)


def apply(policy: dict[str, Any]) -> dict[str, str]:
    """Give up all rights that the policy does not grant. Return the missing walls, with reasons.

    Raises OSError where namespaces that were made for it cannot be entered.
    """
    missing: dict[str, str] = {}

    def attempt(name: str, build_wall: Callable[[], None]) -> None:
        try:
            build_wall()
        except OSError as error:
            missing[name] = str(error.strerror or error)

    for name, most in policy["limits"].items():
        # at most this much, and never more than what holds already
        kind = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(kind)
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (bound, bound))
    if policy["namespaces"]:
        namespaces.enter(policy["namespaces"])  # or end: other walls then let networks through
    else:
        attempt(NAMESPACES, lambda: _separate(policy["network"]))
    libc.forbid_new_privileges()
    attempt(LANDLOCK, lambda: _restrict(policy))
    attempt("capabilities", namespaces.drop_capabilities)
    attempt(SECCOMP, lambda: _filter_calls(policy))
    return missing


def _separate(network: str) -> None:
    if network != "none":  # in one of its own it would not reach others
        raise OSError("the machine has none that processes can share")
    namespaces.separate()


def _restrict(policy: dict[str, Any]) -> None:
    """Restrict files, signals, and the network as far as namespaces do not. Raises OSError."""
    abi = landlock.version()
    if policy["accelerators"]:
        # The kernel drops entries of /proc that are not open, and with them the rules on them.
        os.set_inheritable(os.open(OWN_THREADS, os.O_PATH), True)
    ports: Iterable[int] = ()
    if is_alone(policy):  # what it reaches is of its lease
        landlock.restrict(_rules(policy), abi, ports=None, scopes=landlock.SIGNALS)
        return
    if policy["network"] != "none":
        if abi < landlock.NETWORK_VERSION:
            raise OSError(f"version {abi} does not restrict networks: take Linux 6.7 or newer")
        ports = free_ports()
    landlock.restrict(_rules(policy), abi, ports=ports)


def is_alone(policy: dict[str, Any]) -> bool:
    """Return whether processes under this policy have a network namespace to themselves."""
    return policy["network"] == "loopback" and bool(policy["namespaces"])


def free_ports() -> Iterable[int]:
    """Ports that the machine gives to sockets which name none: no service is found there."""
    first, last = map(int, PORTS_OF_CONNECTIONS.read_text().split())
    return (ANY_FREE_PORT, *range(first, last + 1))


def _rules(policy: dict[str, Any]) -> list[tuple[str, int]]:
    rights = {
        "read": landlock.READ,
        "list": landlock.LIST,
        "devices": landlock.DEVICE,
        "write": landlock.WRITE,
        "links": landlock.MAKE_SYM,
        "sockets": landlock.MAKE_SOCK,
    }
    rules = [(path, rights[kind]) for kind in rights for path in policy[kind]]
    if policy["namespaces"]:
        rules.append((namespaces.SHARED_MEMORY, landlock.WRITE))
    if policy["accelerators"]:
        rules.append((OWN_THREADS, landlock.DEVICE))
    return rules


def _filter_calls(policy: dict[str, Any]) -> None:
    known = filters.architecture()
    program = filters.build(
        known,
        sockets=bool(policy["sockets"]),
        processes=policy["processes"],
        unreachable=policy["accelerators"],
        streams=policy["network"] != "none",
        datagrams=is_alone(policy),
        own_pid=None if _restricts_signals() else os.getpid(),
    )
    filters.load(program, known.seccomp)


def _restricts_signals() -> bool:
    try:
        return landlock.version() >= 6
    except OSError:
        return False


if __name__ == "__main__":
    main()
