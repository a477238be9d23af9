"""Sockets of processes of one machine, as files that only their owner can open."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def listen_at(path: Path) -> socket.socket:
    """A listening socket at `path`; a file that an earlier process left there is replaced.

    Raises OSError.
    """
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short_name(path) as name:
            listening.bind(name)
        path.chmod(0o600)
        listening.listen()
    except OSError:
        listening.close()
        raise
    return listening


def connect_to(path: Path) -> socket.socket:
    """A connection to the process that listens at `path`. Raises OSError when there is none."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short_name(path) as name:
            connection.connect(name)
    except OSError:
        connection.close()
        raise
    return connection


@contextmanager
def short_name(path: Path) -> Iterator[str]:
    """A name of `path` in this process that fits: the kernel takes 107 bytes. Raises OSError."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
