"""Checks what a stack needs on this machine, and names a fix for what is missing."""

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tunery.confinement.confined import REQUIRED
from tunery.confinement.support import landlock_version, missing_walls
from tunery.local import kafka, postgres, prometheus, provide, s3, settings, state, valkey
from tunery.local.errors import LocalError
from tunery.local.paths import VERSITYGW_VERSION, DataDir
from tunery.local.state import StackPhase

DISK_BYTES_MIN: Final = 2 * 1024**3
MEMORY_BYTES_MIN: Final = 4 * 1024**3
RUN_S_MAX: Final = 30


@dataclass(frozen=True)
class Diagnosis:
    """The result of one check."""

    name: str
    detail: str
    fix: str = ""  # what to do; empty: all is well

    @property
    def is_well(self) -> bool:
        return not self.fix


def examine(folders: DataDir) -> Iterator[Diagnosis]:
    """Yield the result of every check, also of those where all is well."""
    yield machine()
    yield python()
    yield from (guarded(name, check) for name, check in PROGRAMS)
    for part, path in provide.missing():
        yield Diagnosis(part, f"missing at {path}", "run `make setup`")
    yield observer()
    yield processors()
    yield memory()
    yield confinement()
    yield from data_dir(folders)
    yield own_servers()
    yield last_run(folders)


def guarded(
    name: str, check: Callable[[], str], otherwise: str = "run `make setup` again"
) -> Diagnosis:
    """Run one check. otherwise: the fix for an error that names none itself."""
    try:
        return Diagnosis(name, check())
    except LocalError as problem:
        return Diagnosis(name, problem.what, problem.fix)
    except (OSError, subprocess.SubprocessError) as problem:
        return Diagnosis(name, f"{type(problem).__name__}: {problem}", otherwise)


def machine() -> Diagnosis:
    system = f"{platform.system()} {platform.machine()}"
    fix = (
        ""
        if system == "Linux x86_64"
        else "the embedded servers need Linux on x86-64: use your own servers"
    )
    return Diagnosis("machine", system, fix)


def python() -> Diagnosis:
    fix = "" if sys.version_info >= (3, 11) else "use Python 3.11 or newer"
    return Diagnosis("python", f"{platform.python_version()} at {sys.executable}", fix)


def output(command: list[str]) -> str:
    """Run a command and return the first line of its output. Raises LocalError when it fails."""
    return next(iter(lines_of(command)), "")


def lines_of(command: list[str]) -> list[str]:
    """Run a command and return the lines of its output. Raises LocalError when it fails."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_S_MAX, check=False, cwd="/"
    )
    text = (done.stdout + done.stderr).strip()
    if done.returncode != 0:
        raise LocalError(
            f"{command[0]} ended with {done.returncode}: {text[-300:]}", "`make setup`"
        )
    return text.splitlines()


def java() -> str:
    return output([kafka.java(), "-version"])


def kafka_jars() -> str:
    return f"{len(kafka.class_path().split(':'))} jars, complete"


def postgres_binaries() -> str:
    return output([str(postgres.packaged_install() / "bin" / "postgres"), "--version"])


def valkey_binary() -> str:
    return output([str(valkey.binary()), "--version"])


def versitygw() -> str:
    output([str(s3.built_binary()), "--version"])  # runs; it reports no version of its own
    return f"versitygw {VERSITYGW_VERSION}"


def training() -> str:
    """Return the packages for training. Raises LocalError when one is not installed."""
    absent = [
        name
        for name in ("torch", "transformers", "trl", "peft")
        if importlib.util.find_spec(name) is None
    ]
    if absent:
        raise LocalError(
            f"{', '.join(absent)} not installed: nothing can be trained here",
            "run `make setup`, or `tunery up --no-agent`",
        )
    return "torch, transformers, trl, peft"


PROGRAMS: Final[tuple[tuple[str, Callable[[], str]], ...]] = (
    ("java", java),
    ("kafka", kafka_jars),
    ("postgres", postgres_binaries),
    ("valkey", valkey_binary),
    ("s3", versitygw),
    ("training", training),
)


def observer() -> Diagnosis:
    """Return the Prometheus that `tunery up --observe` starts. Prometheus is optional."""
    try:
        return Diagnosis("prometheus", str(prometheus.program()))
    except LocalError:
        detail = "not installed; `tunery up --observe` gets Debian's package"
        return Diagnosis("prometheus", detail)


def processors() -> Diagnosis:
    """How many processors and NVIDIA devices trainings can use. Without devices they are slow."""
    cpus, devices = f"{os.cpu_count()} CPUs", "no NVIDIA device"
    if (tool := shutil.which("nvidia-smi")) is not None:
        listed = guarded("gpus", lambda: str(len(lines_of([tool, "--list-gpus"]))))
        if not listed.is_well:
            return Diagnosis("processors", listed.detail, "mend the NVIDIA driver, or remove it")
        if count := int(listed.detail):
            devices = f"{count} NVIDIA device{'' if count == 1 else 's'}"
    return Diagnosis("processors", f"{cpus}, {devices}")


def memory() -> Diagnosis:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    fix = "" if total >= MEMORY_BYTES_MIN else "the servers and one training need 4 GiB"
    return Diagnosis("memory", f"{total / 1024**3:.0f} GiB", fix)


def confinement() -> Diagnosis:
    """Return the sandbox mechanisms available for processes that read tenants' uploads."""
    try:
        missing = missing_walls()
    except (OSError, subprocess.SubprocessError, ValueError) as problem:
        missing = dict.fromkeys(REQUIRED, f"{type(problem).__name__}: {problem}")
    if not missing:
        detail = f"Landlock (version {landlock_version()}), seccomp, namespaces, no capabilities"
        return Diagnosis("confinement", detail)
    detail = "; ".join(f"no {name} ({why})" for name, why in sorted(missing.items()))
    if missing.keys() & set(REQUIRED):
        fix = "use a kernel with Landlock and seccomp, or set TUNERY_CONFINE=prefer"
        return Diagnosis("confinement", detail, fix)
    return Diagnosis("confinement", f"{detail}; Landlock and seccomp hold")


def data_dir(folders: DataDir) -> Iterator[Diagnosis]:
    """Check that the data directory can be written to, has space and keeps attributes."""
    existing = next(path for path in (folders.root, *folders.root.parents) if path.exists())
    if not os.access(existing, os.W_OK):
        yield Diagnosis(
            "data", f"{existing} is not writable", "choose another with --data-dir DIRECTORY"
        )
        return
    free = shutil.disk_usage(existing).free
    yield Diagnosis(
        "disk",
        f"{free / 1024**3:.1f} GiB free for {folders.root}",
        "" if free >= DISK_BYTES_MIN else "free 2 GiB, or choose another --data-dir",
    )
    yield guarded(
        "attributes", lambda: attributes(existing), "choose another with --data-dir DIRECTORY"
    )


def attributes(folder: Path) -> str:
    s3.check_attributes(folder)
    return "the file system keeps extended attributes"


def own_servers() -> Diagnosis:
    try:
        names = sorted(settings.replaced(os.environ))
    except LocalError as problem:
        return Diagnosis("servers", problem.what, problem.fix)
    return Diagnosis("servers", ", ".join(names) or "all embedded")


def last_run(folders: DataDir) -> Diagnosis:
    now = state.read(folders)
    if now.phase is StackPhase.FAILED:  # also while its supervisor still stops the children
        return Diagnosis("stack", f"could not start: {now.failure}", "see above, then `tunery up`")
    if now.is_alive():
        return Diagnosis("stack", f"{now.phase} on {folders.root}")
    return Diagnosis("stack", "not running; `tunery up` starts it")
