"""Small secret files: written aside and put into place whole, readable by their owner alone."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from tunery.platform.seal.abstract import KeyStoreBroken

LOCK: Final = ".lock"


def write_aside(path: Path, body: bytes) -> Path:
    """A complete file next to `path`, on the disk. Raises KeyStoreBroken."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise KeyStoreBroken(f"cannot write {aside}: {error}; check the folder") from error
    return aside


def create_file(path: Path, body: bytes) -> bool:
    """Create a file; False where there is one already. Raises KeyStoreBroken."""
    aside = write_aside(path, body)
    try:
        path.hardlink_to(aside)
    except FileExistsError:
        return False
    except OSError as error:
        raise KeyStoreBroken(f"cannot write {path}: {error}; check the folder") from error
    finally:
        aside.unlink(missing_ok=True)
    sync_folder(path.parent)
    return True


def replace_file(path: Path, body: bytes) -> None:
    """Readers see the old file or the new one. Raises KeyStoreBroken."""
    aside = write_aside(path, body)
    try:
        aside.replace(path)
    except OSError as error:
        raise KeyStoreBroken(f"cannot write {path}: {error}; check the folder") from error
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def overwrite(file: BinaryIO, filler: bytes) -> None:
    """Best effort on file systems that write in place; copy-on-write ones keep the old bytes."""
    file.seek(0)
    file.write(filler * os.fstat(file.fileno()).st_size)
    file.flush()
    os.fsync(file.fileno())


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Be the only writer of the folder, of all processes; the kernel ends it with the process.

    Raises KeyStoreBroken.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise KeyStoreBroken(f"cannot lock {folder}: {error}; check the folder") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def identity_of(path: Path) -> tuple[int, int, int]:
    """Return inode, modification time (ns) and size, which tell a replaced file. Raises OSError."""
    stat = path.stat()
    return stat.st_ino, stat.st_mtime_ns, stat.st_size
