"""The scratch directory: folders for files that are being processed."""

import shutil
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from schemas.units import Ms

PREFIX: Final = "work-"


def new_folder(scratch: Path) -> Path:
    """Create an empty folder that only this user can read."""
    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Path(mkdtemp(dir=scratch, prefix=PREFIX))


def named_folder(scratch: Path, name: str) -> Path:
    """The folder in which interrupted work of this name is resumed; it need not exist."""
    return scratch / f"{PREFIX}{name}"


def sweep(scratch: Path, older_than_ms: Ms) -> int:
    """Remove folders of killed processes, and return how many.

    Folders that were used within `older_than_ms` may belong to a running process and stay.
    """
    swept = 0
    for folder in scratch.glob(f"{PREFIX}*"):
        try:
            changed_s = max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
            age_ms = time.time() * 1000 - changed_s * 1000
        except (FileNotFoundError, NotADirectoryError):
            continue  # another process removed it, or it is a plain file, which we never create
        if age_ms > older_than_ms:
            shutil.rmtree(folder, ignore_errors=True)
            swept += 1
    return swept
