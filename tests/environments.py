"""Packages that cannot live in our own environment, each in one of its own."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from tunery.local.bootstrap import find_uv
from tunery.local.paths import cache_dir

STAMP: Final = "complete"
INSTALL_S_MAX: Final = 240


def environment(name: str, version: str, *others: str, python: Path | None = None) -> Path:
    """The folder of its programs; made once for each version, kept with the other downloads.

    others: packages that it needs besides, as requirements. python: None: ours.
    Raises CalledProcessError, TimeoutExpired.
    """
    folder = cache_dir() / "tests" / f"{name}-{version}"
    programs = folder / "bin"
    if not (folder / STAMP).exists():
        uv, inside = find_uv(), str(programs / "python")
        _run(
            uv, "venv", "--quiet", "--clear", "--python", str(python or sys.executable), str(folder)
        )
        _run(uv, "pip", "install", "--quiet", "--python", inside, f"{name}=={version}", *others)
        (folder / STAMP).touch()
    return programs


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=INSTALL_S_MAX)
