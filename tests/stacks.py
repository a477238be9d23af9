"""Data directories for stacks of tests, and ending what a killed test run left behind."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tunery.local import SERVERS, SERVICES
from tunery.local.processes import stop_orphans

PREFIX: Final = "tunery-test-"


@contextlib.contextmanager
def temporary_data_dir() -> Iterator[Path]:
    """A folder that any user may traverse (PostgreSQL runs as `nobody` under root)."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep() -> None:
    """Stop the processes and delete the folders of test runs that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        lock = folder / "run" / "lock"
        if folder.stat().st_uid != os.geteuid():
            continue  # of another user, who sweeps it
        if lock.exists() and not is_held(lock):
            stop_orphans(folder / "run", (*SERVICES, *SERVERS[::-1]))
            shutil.rmtree(folder, ignore_errors=True)


def is_held(lock: Path) -> bool:
    try:
        with lock.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
