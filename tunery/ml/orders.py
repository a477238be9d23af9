"""The order that a process that has trained reads from its standard input."""

import os
import select
import sys
import tempfile
from pathlib import Path
from typing import Final

from tunery.work.orders import Order, decode_order

OWN_FOLDERS: Final = ("HOME", "TMPDIR", "XDG_CACHE_HOME")


def read_order(wait_s: float | None = None) -> Order | None:
    """Wait for the order; None when the agent is gone, or none has come in that time.

    Raises msgspec.MsgspecError.
    """
    if not select.select([sys.stdin], [], [], wait_s)[0]:
        return None
    line = sys.stdin.buffer.readline()
    return decode_order(line) if line else None


def become(order: Order) -> None:
    """Take the place in the file system that the order names. Raises OSError."""
    os.chdir(order.folder)
    for name in OWN_FOLDERS:  # below the folder that it has waited in, which is that folder now
        if name in os.environ:
            os.environ[name] = str(Path(order.folder) / Path(os.environ[name]).name)
    tempfile.tempdir = None
    with Path(os.devnull).open("rb") as no_input:
        os.dup2(no_input.fileno(), sys.stdin.fileno())
