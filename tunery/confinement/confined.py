"""Start of confined processes by a service, as its operator chose.

`TUNERY_CONFINE` is `require`, which refuses to start them on a machine without Landlock or seccomp;
`prefer`, which does with what there is; or `off`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from tunery.confinement.enter import LANDLOCK, SECCOMP
from tunery.confinement.namespaces import SHARED
from tunery.confinement.policy import (
    ConfinementPolicy,
    Network,
    accelerator_devices,
    import_folder,
    interpreter,
)

ConfineMode: TypeAlias = Literal["require", "prefer", "off"]
REQUIRED: Final = (LANDLOCK, SECCOMP)  # each refuses by itself what namespaces take away
START: Final = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from tunery.confinement.enter import main; main()"
)
HOLD: Final = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from tunery.confinement.namespaces import hold; hold(sys.argv[2])"
)
HOLD_S_MAX: Final = 30
TEMPORARY: Final = "tmp"


@dataclass(frozen=True)
class Confinement:
    """The operator's choice, and what it makes of a program to start."""

    mode: ConfineMode = "require"

    def command(self, argv: Sequence[str], policy: ConfinementPolicy) -> tuple[str, ...]:
        """Arguments that start a program of this interpreter under a policy."""
        rights = self.rights(policy)
        return tuple(argv) if rights is None else start_arguments(json.dumps(rights), *argv)

    def rights(self, policy: ConfinementPolicy) -> dict[str, Any] | None:
        """A policy as `enter` applies it; None: it applies none."""
        if self.mode == "off":
            return None
        return {
            "read": (*interpreter(), *policy.read),
            "list": (import_folder(),),
            "write": policy.write,
            "links": policy.links,
            "devices": (*policy.devices, *(accelerator_devices() if policy.accelerators else ())),
            "accelerators": policy.accelerators,
            "sockets": policy.sockets,
            "network": policy.network,
            "namespaces": policy.namespaces,
            "processes": policy.processes,
            "limits": policy.limits,
            "required": REQUIRED if self.mode == "require" else (),
        }


def start_arguments(policy: str, *argv: str) -> tuple[str, ...]:
    """Arguments that start `enter`: isolated, and without packages, for the sake of time."""
    return (sys.executable, "-I", "-S", "-c", START, import_folder(), policy, *argv)


def shared_namespaces(network: Network) -> tuple[int, ...]:
    """Make namespaces for several processes; descriptors, which the caller closes.

    network: "loopback" has one of its own. Raises OSError where the machine refuses them.
    """
    with subprocess.Popen(
        (sys.executable, "-I", "-S", "-c", HOLD, import_folder(), network),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdin is not None  # noqa: S101  # pipes, as asked for
        assert holder.stdout is not None  # noqa: S101  # a pipe, too
        if (said := holder.stdout.readline().strip()) != "made":
            raise OSError(said)
        names = [name for name in SHARED if network == "loopback" or name != "net"]
        kept = [os.open(f"/proc/{holder.pid}/ns/{name}", os.O_RDONLY) for name in names]
        holder.communicate(timeout=HOLD_S_MAX)  # its input ends, and so does it
    return tuple(kept)


def private_environment(folder: Path) -> dict[str, str]:
    """Variables by which libraries find a temporary folder and a home, both new in `folder`.

    Raises OSError.
    """
    own = folder / TEMPORARY
    own.mkdir(mode=0o700, exist_ok=True)
    return dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME"), str(own))
