import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.sealed import REDACTED, Sealed
from tunery.runtime.seal.abstract import (
    KEY_BYTES,
    KeyDestroyed,
    KeyStore,
    KeyStoreBroken,
    SealBroken,
)
from tunery.runtime.seal.directory import DirectoryKeyStore
from tunery.runtime.seal.memory import MemoryKeyStore
from tunery.runtime.seal.sealer import Sealer


@pytest.fixture(params=["memory", "directory"])
def keys(request: pytest.FixtureRequest, tmp_path: Path) -> KeyStore:
    return MemoryKeyStore() if request.param == "memory" else DirectoryKeyStore(tmp_path / "keys")


def test_what_is_sealed_opens(keys: KeyStore) -> None:
    sealer = Sealer(keys)
    sealed = sealer.seal("acme", "my-file ü.jsonl")
    assert b"my-file" not in sealed.ciphertext
    assert sealer.open(sealed) == "my-file ü.jsonl"
    assert Sealer(keys).open(sealed) == "my-file ü.jsonl"
    assert sealer.seal("acme", "same").ciphertext != sealer.seal("acme", "same").ciphertext


def test_an_erased_tenant_reads_as_redacted_and_others_do_not(keys: KeyStore) -> None:
    sealer = Sealer(keys)
    mine, other = sealer.seal("acme", "secret"), sealer.seal("other", "kept")
    sealer.destroy("acme")
    sealer.destroy("acme")
    assert sealer.open(mine) == REDACTED
    assert sealer.open(other) == "kept"
    later = sealer.seal("acme", "written after the erasure")
    assert later.ciphertext == b""
    assert sealer.open(later) == REDACTED
    with pytest.raises(KeyDestroyed, match="acme"):
        sealer.hmac("acme", b"x")
    with pytest.raises(KeyDestroyed):
        sealer.secret("acme", "webhook")


def test_a_tenant_that_never_was_has_no_key_to_open_with(keys: KeyStore) -> None:
    assert keys.find("nobody") is None
    assert Sealer(keys).open(Sealed(key_id="nobody.1", nonce=b"", ciphertext=b"")) == REDACTED
    assert Sealer(keys).open(Sealed(key_id="", nonce=b"", ciphertext=b"")) == REDACTED
    assert keys.find("nobody") is None


def test_damaged_bytes_do_not_open(keys: KeyStore) -> None:
    sealer = Sealer(keys)
    sealed = sealer.seal("acme", "text")
    last = bytes([sealed.ciphertext[-1] ^ 1])  # always another byte
    for damaged in (
        Sealed(sealed.key_id, sealed.nonce, sealed.ciphertext[:-1] + last),
        Sealed(sealed.key_id, b"", sealed.ciphertext),
        Sealed(sealed.key_id, sealed.nonce, b""),
    ):
        with pytest.raises(SealBroken, match="does not open"):
            sealer.open(damaged)


def test_derived_secrets_follow_from_tenant_and_use(keys: KeyStore) -> None:
    sealer = Sealer(keys)
    assert sealer.hmac("a", b"body") == sealer.hmac("a", "body") == Sealer(keys).hmac("a", b"body")
    assert len({sealer.hmac("a", b"x"), sealer.hmac("b", b"x"), sealer.hmac("a", b"y")}) == 3
    secrets = [
        sealer.secret("a", "we_1", 1),
        sealer.secret("a", "we_1", 2),
        sealer.secret("a", "we_11", ""),
        sealer.secret("b", "we_1", 1),
    ]
    assert len(set(secrets)) == 4
    assert {len(secret) for secret in secrets} == {KEY_BYTES}


@given(st.text(), st.text(min_size=1, max_size=20).filter(lambda t: "\ud800" not in t))
def test_any_text_of_any_tenant(text: str, tenant: str) -> None:
    sealer = Sealer(MemoryKeyStore())
    try:
        text.encode()
        tenant.encode()
    except UnicodeEncodeError:
        return
    assert sealer.open(sealer.seal(tenant, text)) == text


def test_key_files_are_ours_alone_and_say_nothing_more(tmp_path: Path) -> None:
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
