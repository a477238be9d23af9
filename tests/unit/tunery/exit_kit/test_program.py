"""The program that a server starts for an import: what it says where the disk is full."""

import errno
import io
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tunery.exit_kit.program import run
from tunery.exit_kit.stand_in import KEY, account_stub, rows


def nearly_full(patched: pytest.MonkeyPatch, folder: Path) -> None:
    usage = shutil.disk_usage(folder)._replace(free=100_000_000)
    patched.setattr(shutil, "disk_usage", lambda _path: usage)


def full(patched: pytest.MonkeyPatch, folder: Path) -> None:
    def keep(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / "files/file-a.part"))

    patched.setattr("tunery.exit_kit.folder.ExportFolder.keep", keep)


@pytest.mark.parametrize(
    ("disk", "size", "words"),
    [
        (nearly_full, 2_000_000_000, "the server's folder has 100 MB free, and the files need"),
        (full, len(rows()), "the server cannot store it: No space left on device"),
    ],
)
def test_exit_kit_a_full_disk_of_the_server_is_reported_without_its_folder(
    disk: Callable[[pytest.MonkeyPatch, Path], None],
    size: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    disk(monkeypatch, tmp_path)
    with account_stub() as account:
        account.add_file("file-a", rows(), bytes=size)
        order = {"source": "openai", "url": account.url, "key": KEY, "bytes_max": 10**12}
        monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(order) + "\n"))
        with pytest.raises(SystemExit):
            run("read", str(tmp_path))
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert words in last["error"]
    assert str(tmp_path) not in last["error"]
    assert last["again"] is False
