import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tunery.platform.seal.abstract import KeyStoreBroken
from tunery.platform.seal.files import create_file, lock_folder, overwrite, replace_file

HOLD = """
import sys, time
from pathlib import Path
from tunery.platform.seal.files import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_file_is_created_once_and_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert create_file(path, b"first")
    assert not create_file(path, b"second")
    replace_file(path, b"third")
    assert path.read_bytes() == b"third"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_old_bytes_are_overwritten_where_they_lie(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"secret")
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    with (tmp_path / "a").open("r+b") as file:
        overwrite(file, b" ")
    assert (tmp_path / "b").read_bytes() == b"      "


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"held\n"
    os.kill(child.pid, signal.SIGKILL)
    with lock_folder(tmp_path):
        assert child.wait(timeout=180) == -signal.SIGKILL
    child.stdout.close()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(KeyStoreBroken, match="cannot lock"), lock_folder(tmp_path / "file"):
        pass
    with pytest.raises(KeyStoreBroken, match="cannot write"):
        create_file(tmp_path / "missing" / "a", b"")
