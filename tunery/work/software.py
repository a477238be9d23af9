"""Software that a training is computed with, as its lineage records it."""

import hashlib
import platform
from collections.abc import Iterable
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("schemas", "services", "tunery")  # of the wheel
LOCK: Final = "requirements.lock"


@cache
def installed_software() -> dict[str, str]:
    """Facts of this installation. It reads some hundred files, once in a process.

    python: version of the interpreter. tunery_sha256: of the sources that run, the same for a
    commit and for the wheel that was built from it. packages_sha256: of the names and versions of
    all installed packages. requirements_sha256: of the lock, where it is a checkout.
    """
    installed = {
        f"{package.metadata['Name'].lower()}=={package.version}" for package in distributions()
    }
    lock = ROOT / LOCK
    return {
        "python": platform.python_version(),
        "tunery_sha256": code_sha256(ROOT, PACKAGES),
        "packages_sha256": _sha256("\n".join(sorted(installed)).encode()),
        **({"requirements_sha256": _sha256(lock.read_bytes())} if lock.is_file() else {}),
    }


def code_sha256(root: Path, packages: Iterable[str]) -> str:
    """Hash of the names and contents of all sources of some packages."""
    digest = hashlib.sha256()
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            content = _sha256(path.read_bytes())
            digest.update(f"{path.relative_to(root).as_posix()} {content}\n".encode())
    return digest.hexdigest()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
