"""Applies a policy to this process, which then becomes the program that it was started for.

`command` of `confined` names its arguments: a policy as JSON, and the program's. It uses the
standard library alone, so that it costs milliseconds. A wall that the machine does not have ends it
with CANNOT_CONFINE where the policy requires it, else the others hold.
"""

import json
import os
import resource
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn

from tunery.confinement import filters, landlock, libc, namespaces

CANNOT_CONFINE: Final = 78  # EX_CONFIG of sysexits.h
LANDLOCK, SECCOMP, NAMESPACES = "landlock", "seccomp", "namespaces"


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
    """Give up all that the policy does not leave. Why walls are missing, by their name."""
    missing: dict[str, str] = {}

    def attempt(name: str, build_wall: Callable[[], None]) -> None:
        try:
            build_wall()
        except OSError as error:
            missing[name] = str(error.strerror or error)

    for name, most in policy["limits"].items():
        _limit(getattr(resource, f"RLIMIT_{name}"), most)
    attempt(NAMESPACES, namespaces.separate)
    libc.forbid_new_privileges()
    attempt(LANDLOCK, lambda: landlock.restrict(_rules(policy), landlock.version()))
    attempt("capabilities", namespaces.drop_capabilities)
    attempt(SECCOMP, lambda: _filter_calls(policy))
    return missing


def _rules(policy: dict[str, Any]) -> list[tuple[str, int]]:
    rights = {
        "read": landlock.READ,
        "list": landlock.LIST,
        "devices": landlock.DEVICE,
        "write": landlock.WRITE,
        "links": landlock.MAKE_SYM,
        "sockets": landlock.MAKE_SOCK,
    }
    return [(path, rights[kind]) for kind in rights for path in policy[kind]]


def _filter_calls(policy: dict[str, Any]) -> None:
    known = filters.architecture()
    program = filters.build(
        known,
        sockets=bool(policy["sockets"]),
        processes=policy["processes"],
        own_pid=None if _restricts_signals() else os.getpid(),
    )
    filters.load(program, known.seccomp)


def _restricts_signals() -> bool:
    try:
        return landlock.version() >= 6
    except OSError:
        return False


def _limit(kind: int, most: int) -> None:
    """At most this much, and never more than what holds already."""
    _, hard = resource.getrlimit(kind)
    bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (bound, bound))


if __name__ == "__main__":
    main()
