"""Directories that exist whole or not at all, even after a power cut."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

from tunery.platform.blobs.files import file_sha256
from tunery.work.events import FileDigest

PARTIAL_PREFIX: Final = "tmp-"


def digest_file(path: Path) -> FileDigest:
    """Name, hash and size of a file."""
    return FileDigest(name=path.name, sha256=file_sha256(path), bytes=path.stat().st_size)


@contextmanager
def new_directory(final: Path, *, last: str | None = None) -> Iterator[Path]:
    """A temporary sibling of `final` to fill; on success fsynced and renamed to `final`.

    `last` names a file that must be durable only after all others (a manifest). A `final` that is
    already there is replaced. On an exception the partial directory goes.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    partial = _partial(final)
    partial.mkdir()
    try:
        yield partial
        files = sorted(path for path in partial.rglob("*") if path.is_file())
        for path in sorted(files, key=lambda path: path.name == last):
            fsync(path)
        fsync(partial)
        if final.exists():
            remove_directory(final)
        partial.rename(final)
        fsync(final.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def remove_directory(path: Path) -> None:
    """Delete a directory under another name: cut off, it leaves none that looks whole."""
    partial = _partial(path)
    path.rename(partial)
    shutil.rmtree(partial)


def _partial(final: Path) -> Path:
    return final.parent / f"{PARTIAL_PREFIX}{final.name}-{uuid4().hex}"


def remove_partials(parent: Path) -> None:
    """Delete temporary directories of killed writers."""
    for path in parent.glob(f"{PARTIAL_PREFIX}*"):
        shutil.rmtree(path, ignore_errors=True)


def fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
