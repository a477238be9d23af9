"""`python -m tests.pythons`: quick and outage tests on the oldest and the newest Python known.

Tunery promises Python 3.11 and later, and asyncio differs between their patch releases: 3.11.0 to
3.11.2, which Debian 12 ships, lose the balance of cancellations in `asyncio.timeout`. Each
interpreter gets an environment of its own from the lock, in `.venvs/`. Exit status 1 when tests
fail, or when an interpreter that is promised was not known.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

ROOT: Final = Path(__file__).resolve().parents[1]
VENVS: Final = ROOT / ".venvs"
UV: Final = ROOT / ".tools" / "bin" / "uv"
OLDEST: Final = (3, 11)
UNBALANCED: Final = ((3, 11, 0), (3, 11, 2))  # gh-102780 was mended in 3.11.3
INSTALLED: Final = re.compile(r"python3\.\d+")
TESTS: Final = (
    ("-m", "not train", "tests/simulation", "tests/contract", "tests/unit"),
    ("-m", "not soak", "tests/e2e/test_bad_days.py", "tests/e2e/test_outages.py"),
)
Version: TypeAlias = tuple[int, ...]


def interpreters() -> dict[Version, Path]:
    """Every Python from 3.11 on in PATH, in /usr/bin and of pyenv, by its full version."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    folders += [Path("/usr/bin"), Path("/usr/local/bin")]
    folders += sorted(Path.home().glob(".pyenv/versions/*/bin"))
    known: dict[Version, Path] = {}
    for folder in folders:
        for path in sorted(folder.glob("python3.*")):
            if INSTALLED.fullmatch(path.name) and (version := version_of(path)) is not None:
                known.setdefault(version, path)
    return known


def version_of(python: Path) -> Version | None:
    """The full version of an interpreter; None when it does not run or is older than promised."""
    ask = "import sys; print(*sys.version_info[:3])"
    try:
        asked = subprocess.run(
            [python, "-IS", "-c", ask], capture_output=True, text=True, check=True, timeout=20
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = tuple(int(part) for part in asked.stdout.split())
    return version if version >= OLDEST else None


def missing(versions: Iterable[Version]) -> list[str]:
    """Promises that cannot be tested here, in sentences."""
    known = sorted(versions)
    sentences = []
    if not any(UNBALANCED[0] <= version <= UNBALANCED[1] for version in known):
        sentences.append(
            "no Python 3.11.0 to 3.11.2 was found (Debian 12 has one: apt-get install python3.11)"
        )
    if not known or known[-1] < (3, 13):
        sentences.append("no Python 3.13 or newer was found (pyenv install 3.13)")
    return sentences


def environment(version: Version, python: Path) -> Path:
    """The interpreter of an environment as `make setup` makes it. Raises CalledProcessError."""
    folder = VENVS / ".".join(map(str, version))
    inside = folder / "bin" / "python"
    env = {**os.environ, "PATH": f"{inside.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    for command in commands(folder, python):
        subprocess.run(command, check=True, env=env)
    return inside


def commands(folder: Path, python: Path) -> Iterator[list[str]]:
    """Commands that create the environment in `folder`: itself, the locked packages, Tunery."""
    uv = str(UV) if UV.exists() else shutil.which("uv") or "uv"
    inside = folder / "bin" / "python"
    into = ["--quiet", "--python", str(inside)]
    if not inside.exists():
        yield [uv, "venv", "--quiet", "--python", str(python), str(folder)]
    yield [uv, "pip", "sync", *into, "--require-hashes", str(ROOT / "requirements.lock")]
    own = ["--no-build-isolation", "--no-deps", "--editable", str(ROOT)]
    yield [uv, "pip", "install", *into, *own]


def main() -> int:
    """Test the oldest and the newest; print what ran and what could not."""
    known = interpreters()
    chosen = sorted({min(known), max(known)}) if known else []
    failed = []
    for version in chosen:
        python = environment(version, known[version])
        name = ".".join(map(str, version))
        for tests in TESTS:
            print(f"Python {name} ({known[version]}): pytest {' '.join(tests)}", flush=True)
            command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
            if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
                failed.append(f"tests failed on Python {name}: {' '.join(tests)}")
    for sentence in (*failed, *missing(known)):
        print(f"pythons: {sentence}", file=sys.stderr)
    return 1 if failed or missing(known) else 0


if __name__ == "__main__":
    sys.exit(main())
