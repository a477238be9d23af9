"""Mechanisms of confinement that this machine supports, found by a process that confines itself."""

import json
import subprocess
from collections.abc import Mapping
from typing import Final

from tunery.confinement import landlock
from tunery.confinement.confined import start_arguments

TRIAL_S_MAX: Final = 30
TRIAL_POLICY: Final = {
    "read": ["/"],
    "list": [],
    "write": [],
    "devices": [],
    "accelerators": False,
    "links": [],
    "sockets": [],
    "network": "none",
    "namespaces": [],
    "processes": False,
    "limits": {},
    "required": [],
}


def missing_walls() -> Mapping[str, str]:
    """Why walls are missing, by their name as `enter` knows them; empty: there are all.

    Raises OSError, subprocess.SubprocessError, ValueError where no process can be started.
    """
    trial = {**TRIAL_POLICY, "reports": True}
    said = subprocess.run(
        start_arguments(json.dumps(trial)),
        capture_output=True,
        timeout=TRIAL_S_MAX,
        check=True,
    )
    missing: dict[str, str] = json.loads(said.stdout)
    return missing


def landlock_version() -> int:
    """Version of the kernel's Landlock; 0: it has none."""
    try:
        return landlock.version()
    except OSError:
        return 0
