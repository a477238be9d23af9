"""Creates a complete .venv; `make setup` runs it with the system's Python.

It is run as a file and uses the standard library alone, because nothing else is installed yet.
It writes into the clone (.venv, .tools) and the user's cache folder, nowhere else.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "tunery-stamp"
TOOLS = ROOT / ".tools"
LOCK = ROOT / "requirements.lock"
PYTHON_MIN = (3, 11)
UV_MIN = (0, 9)
VERSION_S_MAX = 20


def stop(what: str, fix: str) -> "SystemExit":
    return SystemExit(f"setup: {what}\n  fix: {fix}")


def say(text: str) -> None:
    print(f"setup: {text}", flush=True)


def run(command: list[str], env: dict[str, str] | None = None) -> bool:
    """Run a command with its output on the terminal; returns whether it ended with 0."""
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode == 0


def uv_version(binary: str) -> tuple[int, ...] | None:
    """The version of uv; None when there is no such program or it does not run."""
    try:
        done = subprocess.run(
            [binary, "--version"],
            capture_output=True,
            text=True,
            timeout=VERSION_S_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.match(r"uv (\d+)\.(\d+)", done.stdout)
    return (int(match[1]), int(match[2])) if match else None


def is_new_enough(binary: str) -> bool:
    version = uv_version(binary)
    return version is not None and version >= UV_MIN


def find_uv() -> str:
    """Path of a usable uv: of an earlier set-up, else installed, else from the package registry.

    Raises SystemExit when the fetched one does not run.
    """
    own = str(TOOLS / "bin" / "uv")
    if is_new_enough(own):
        return own
    installed = shutil.which("uv")
    if installed and is_new_enough(installed):
        return installed
    say("fetching uv")
    fetch_uv()
    if not is_new_enough(own):
        raise stop(f"{own} was fetched but does not run", "install uv 0.9 or newer yourself")
    return own


def fetch_uv() -> None:
    """Install uv into .tools, which is renamed into place at the end. Raises SystemExit.

    `pip --target` works even where PEP 668 forbids installing; else a small virtual environment.
    """
    part = ROOT / ".tools.part"
    shutil.rmtree(part, ignore_errors=True)
    env = {**os.environ, "PIP_REQUIRE_VIRTUALENV": "0", "PIP_USER": "0"}
    wanted = f"uv>={UV_MIN[0]}.{UV_MIN[1]}"
    quiet = ["--quiet", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "install", *quiet, "--target", str(part), wanted]
    if not (has_module("pip") and run(pip, env)):
        shutil.rmtree(part, ignore_errors=True)
        created = run([sys.executable, "-m", "venv", str(part)])
        if not (
            created and run([str(part / "bin" / "python"), *pip[1:5], *quiet[1:], wanted], env)
        ):
            shutil.rmtree(part, ignore_errors=True)
            raise stop(
                f"{sys.executable} can neither run pip nor create a virtual environment",
                "install python3-pip, python3-venv or uv (0.9 or newer), then run it again",
            )
    shutil.rmtree(TOOLS, ignore_errors=True)
    part.rename(TOOLS)


def has_module(name: str) -> bool:
    done = subprocess.run(
        [sys.executable, "-m", name, "--version"], capture_output=True, check=False
    )
    return done.returncode == 0


def wanted_stamps() -> dict[str, str]:
    """Hashes from which a complete environment is made: of the lock file and of the project."""
    return {
        "packages": f"{file_sha256(LOCK)} {sys.platform}",
        "project": f"{file_sha256(ROOT / 'pyproject.toml')} {ROOT}",
    }


def file_sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def present_stamps() -> dict[str, str]:
    """Stamps of the present environment; empty when there are none or they cannot be read."""
    try:
        stamps = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamps if isinstance(stamps, dict) else {}


def venv_runs() -> bool:
    check = f"import sys; sys.exit(sys.version_info < {PYTHON_MIN!r})"
    try:
        done = subprocess.run([str(PYTHON), "-c", check], capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


def provide_environment() -> None:
    """Make .venv equal to requirements.lock, hash by hash; nothing to do when it already is."""
    wanted, present = wanted_stamps(), present_stamps()
    runs = venv_runs()
    if runs and present == wanted:
        return
    uv = find_uv()
    if not runs:
        say(f"creating .venv with Python {sys.version.split()[0]}")
        if not run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(VENV)]):
            raise stop("the virtual environment could not be created", "see the message above")
    env = {**os.environ, "PATH": f"{VENV / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"}
    into = ["--quiet", "--python", str(PYTHON)]
    if not runs or present.get("packages") != wanted["packages"]:
        say("installing the locked packages (6 GB, most of it torch)")
        STAMP.unlink(missing_ok=True)
        sync = [uv, "pip", "sync", *into, "--require-hashes", "--compile-bytecode", str(LOCK)]
        if not run(sync, env):
            raise stop(
                "packages could not be installed", "see the message above, then run it again"
            )
    own = ["--no-build-isolation", "--no-deps", "--editable", str(ROOT)]
    if not run([uv, "pip", "install", *into, *own], env):
        raise stop("tunery itself could not be installed", "see the message above")
    STAMP.write_text(json.dumps(wanted, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Create the environment and what it needs. Raises SystemExit with what to do."""
    if sys.version_info < PYTHON_MIN:
        raise stop(
            f"{sys.executable} is Python {sys.version.split()[0]}", "use Python 3.11 or newer"
        )
    provide_environment()
    if not run([str(PYTHON), "-m", "tunery.local.provide"]):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
