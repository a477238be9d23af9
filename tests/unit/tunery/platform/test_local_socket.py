"""Sockets as files: whatever the length of their path, and after a crash."""

import stat
from pathlib import Path

import pytest

from tunery.platform.local_socket import connect_to, listen_at


def test_a_path_may_be_longer_than_the_kernel_takes(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    path = folder / "a.sock"
    with listen_at(path) as listening, connect_to(path) as client:
        connection, _ = listening.accept()
        with connection:
            client.sendall(b"hello")
            assert connection.recv(5) == b"hello"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_socket_of_a_killed_process_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    listen_at(path).close()
    with pytest.raises(ConnectionRefusedError):
        connect_to(path)
    with listen_at(path), connect_to(path) as client:
        assert client.fileno() >= 0
