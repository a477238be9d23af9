"""The folder where files lie while they are worked on."""

import shutil
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from schemas.units import Ms

PREFIX: Final = "work-"


def new_folder(room: Path) -> Path:
    room.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Path(mkdtemp(dir=room, prefix=PREFIX))


def named_folder(room: Path, name: str) -> Path:
    """Where work that is done in pieces goes on after a crash; it need not exist yet."""
    return room / f"{PREFIX}{name}"


def sweep(room: Path, older_than_ms: Ms) -> int:
    """Remove what killed processes left behind; how many folders. Younger ones may be in use."""
    swept = 0
    for folder in room.glob(f"{PREFIX}*"):
        try:
            touched = max(place.stat().st_mtime for place in (folder, *folder.iterdir()))
            age_ms = time.time() * 1000 - touched * 1000
        except FileNotFoundError:
            continue  # another process swept it
        if age_ms > older_than_ms:
            shutil.rmtree(folder, ignore_errors=True)
            swept += 1
    return swept
