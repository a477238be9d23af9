"""Files that a confined process leaves, opened without following what it may have put in the way.

The process names them, and may lie: a name may lead out of its folder, or be a link to a file that
only the service may read.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

FOLDER: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NotTaken(OSError):
    """A name that a confined process gave is not a regular file in its folder."""


@contextmanager
def opened_within(folder: Path, path: Path) -> Iterator[Path]:
    """A path of the open file, which stays the same file whatever happens to its name.

    Raises as `open_within`.
    """
    descriptor = open_within(folder, path)
    try:
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def below(folder: Path, name: str) -> Path:
    """The path in a folder of a file that a confined process has named. Raises NotTaken."""
    path = Path(name)
    if path.is_absolute() or not path.parts or ".." in path.parts:
        raise _not_taken(path)
    return folder / path


def open_within(folder: Path, path: Path) -> int:
    """Open a regular file in a folder, through no link; a descriptor to read from.

    path: relative to the folder, or below it
    Raises NotTaken where it is anything else, FileNotFoundError, OSError.
    """
    # names of folders and of the file
    try:
        parts = path.relative_to(folder).parts if path.is_absolute() else path.parts
    except ValueError:
        raise _not_taken(path) from None
    if not parts or ".." in parts:
        raise _not_taken(path)
    *parents, name = parts
    at = os.open(folder, FOLDER)
    try:
        for part in parents:
            below = os.open(part, FOLDER, dir_fd=at)
            os.close(at)
            at = below
        opened = os.open(name, FILE, dir_fd=at)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
            raise _not_taken(path) from error
        raise
    finally:
        os.close(at)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise _not_taken(path)
    return opened


def _not_taken(path: Path) -> NotTaken:
    text = "the process names what is no regular file in its folder"
    return NotTaken(errno.EPERM, text, str(path))
