"""Packages that cannot live in our own environment, each in one of its own."""

import shutil
import subprocess
import sys
from hashlib import sha256
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


def newest_version(name: str) -> str:
    """The newest version of a package that its index has. Raises CalledProcessError."""
    command = (find_uv(), "pip", "compile", "--quiet", "--no-deps", "--no-header", "-")
    asked = subprocess.run(
        command, input=name, capture_output=True, text=True, check=True, timeout=INSTALL_S_MAX
    )
    (pinned,) = (line for line in asked.stdout.splitlines() if line.startswith(f"{name}=="))
    return pinned.partition("==")[2]


def pinned_environment(requirements: Path) -> Path:
    """The folder of the programs of an environment with exactly the packages of a file.

    Made anew when the file changes. Raises CalledProcessError, TimeoutExpired.
    """
    folder = _folder_of(requirements)
    programs = folder / "bin"
    if not (folder / STAMP).exists():
        uv, inside = find_uv(), str(programs / "python")
        _run(uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder))
        _run(uv, "pip", "sync", "--quiet", "--python", inside, str(requirements))
        (folder / STAMP).touch()
    return programs


def site_packages(programs: Path | None = None) -> Path:
    """The folder of the packages of an environment, by the folder of its programs; None: ours."""
    folder = Path(sys.prefix) if programs is None else programs.parent
    (packages,) = folder.glob("lib/python*/site-packages")
    return packages


def node_packages(manifest: Path) -> Path:
    """The folder `node_modules` with the packages that a package.json names.

    Raises FileNotFoundError without npm; CalledProcessError, TimeoutExpired.
    """
    folder = _folder_of(manifest)
    if not (folder / STAMP).exists():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(manifest, folder / "package.json")
        _run("npm", "install", "--silent", "--ignore-scripts", "--prefix", str(folder))
        (folder / STAMP).touch()
    return folder / "node_modules"


def _folder_of(pins: Path) -> Path:
    digest = sha256(pins.read_bytes()).hexdigest()[:12]
    return cache_dir() / "tests" / f"{pins.stem}-{digest}"


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=INSTALL_S_MAX)
