import subprocess
import sys
from pathlib import Path

import pytest

from schemas.sealed import REDACTED
from tunery.runtime.seal.abstract import KeyStoreBroken
from tunery.runtime.seal.directory import DirectoryKeyStore
from tunery.runtime.seal.sealer import Sealer


def test_key_files_are_private_and_keys_are_not_printed(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    key = DirectoryKeyStore(folder).get("a/b.c")
    assert key is not None
    (file,) = folder.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert file.name == "a%2Fb%2Ec.key"
    assert repr(key.secret) not in repr(key)


def test_another_process_sees_the_erasure(tmp_path: Path) -> None:
    first, second = DirectoryKeyStore(tmp_path), DirectoryKeyStore(tmp_path)
    sealed = Sealer(first).seal("acme", "text")
    assert Sealer(second).open(sealed) == "text"
    first.destroy("acme")
    assert Sealer(second).open(sealed) == REDACTED
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b""]


def test_a_broken_key_file_is_named(tmp_path: Path) -> None:
    store = DirectoryKeyStore(tmp_path)
    for body in (b"{", b"[]", b'{"key_id":"a.1"}', b'{"key_id":"a.1","secret":"AAAA"}'):
        (tmp_path / "a.key").write_bytes(body)
        with pytest.raises(KeyStoreBroken, match=r"a\.key"):
            store.get("a")
    with pytest.raises(KeyStoreBroken, match="no file name"):
        store.get("")
    with pytest.raises(KeyStoreBroken, match="no file name"):
        store.get("x" * 300)


ASK = """
import sys
from pathlib import Path
from tunery.runtime.seal.directory import DirectoryKeyStore
for number in range(50):
    key = DirectoryKeyStore(Path(sys.argv[1])).get(f"tenant-{number}")
    print(key.key_id, key.secret.hex())
"""


def test_processes_that_ask_at_once_agree(tmp_path: Path) -> None:
    children = [
        subprocess.Popen([sys.executable, "-c", ASK, str(tmp_path)], stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    answers = [child.communicate(timeout=30)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0, 0]
    assert len(answers[0].splitlines()) == 50
    assert answers[0] == answers[1] == answers[2]
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".key"] * 50
