"""Data directories for stacks of tests, and ending what a killed test run left behind."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tunery.local.processes import stop_orphans
from tunery.local.settings import KAFKA_LOGIN, REPLACED_BY, S3_NEEDS
from tunery.local.stack import SERVERS, SERVICES

PREFIX: Final = "tunery-test-"
ELSEWHERE: Final = "TUNERY_TEST_ELSEWHERE"  # set: servers are those that the environment names


def elsewhere() -> dict[str, str]:
    """Variables of servers that are not ours to start, as for `tunery up`; mostly none."""
    if not os.environ.get(ELSEWHERE):
        return {}
    names = (*REPLACED_BY.values(), *KAFKA_LOGIN, *S3_NEEDS)
    return {name: os.environ[name] for name in names if os.environ.get(name)}


@contextlib.contextmanager
def temporary_data_dir() -> Iterator[Path]:
    """A folder that any user may traverse (PostgreSQL runs as `nobody` under root).

    The folder is locked while this process lives, also while no supervisor runs in it.
    """
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    folder.chmod(0o711)
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def sweep() -> None:
    """Stop the processes and delete the folders of test runs that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(FileNotFoundError):  # its test run ends at this moment
            if is_left(folder):
                stop_orphans(folder / "run", (*SERVICES, *SERVERS[::-1]))
                shutil.rmtree(folder, ignore_errors=True)


def is_left(folder: Path) -> bool:
    """Whether a folder is not empty and not locked. Folders of other users are left alone."""
    if folder.stat().st_uid != os.geteuid() or not any(folder.iterdir()):
        return False
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
