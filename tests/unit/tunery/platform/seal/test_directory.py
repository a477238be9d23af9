import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest

from schemas.sealed import REDACTED
from tests.unit.tunery.platform.seal.transit_server import transit_server
from tunery.platform.seal.abstract import KeyAbsent, KeyStoreBroken, RootRefused, RootUnavailable
from tunery.platform.seal.directory import AGAIN_S, KEPT_S, DirectoryKeyStore
from tunery.platform.seal.roots import Roots, create_root, describe_vault
from tunery.platform.seal.sealer import Sealer
from tunery.platform.seal.vault_root import AWAY_S, VaultSettings


def test_key_files_are_private_and_keys_are_not_printed(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    ring = DirectoryKeyStore(folder).get("a/b.c")
    assert ring is not None
    key = ring.current
    (file,) = folder.glob("*.key")
    assert file.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700
    assert file.name == "a%2Fb%2Ec.key"
    assert repr(key.secret) not in repr(key)


def test_another_process_sees_the_erasure(tmp_path: Path) -> None:
    first, second = DirectoryKeyStore(tmp_path), DirectoryKeyStore(tmp_path)
    sealed = Sealer(first).seal("acme", "text", "name")
    assert Sealer(second).open(sealed, "name") == "text"
    first.destroy("acme")
    assert Sealer(second).open(sealed, "name") == REDACTED
    assert [path.read_bytes() for path in tmp_path.glob("*.key")] == [b""]


def test_a_broken_key_file_is_named(tmp_path: Path) -> None:
    store = DirectoryKeyStore(tmp_path)
    for body in (
        b"{",
        b"[]",
        b'{"key_id":"a.1"}',
        b'{"key_id":"a.1","secret":"AAAA"}',
        b'{"keys":[]}',
        b'{"keys":{}}',
        b'{"root":"default","keys":[{"key_id":"a.1","secret":"AAAA"}]}',
    ):
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
from tunery.platform.seal.directory import DirectoryKeyStore
for number in range(50):
    key = DirectoryKeyStore(Path(sys.argv[1])).get(f"tenant-{number}").current
    print(key.key_id, key.secret.hex())
"""


def test_processes_that_ask_at_once_agree(tmp_path: Path) -> None:
    children = [
        subprocess.Popen([sys.executable, "-c", ASK, str(tmp_path)], stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    answers = [child.communicate(timeout=180)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0, 0]
    assert len(answers[0].splitlines()) == 50
    assert answers[0] == answers[1] == answers[2]
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == sorted([".lock", *(f"tenant-{number}.key" for number in range(50))])


def store_with_root(folder: Path) -> DirectoryKeyStore:
    create_root(folder / "roots")
    return DirectoryKeyStore(folder / "keys", Roots(folder / "roots"))


def test_a_root_key_wraps_what_is_on_the_disk(tmp_path: Path) -> None:
    store = store_with_root(tmp_path)
    ring = store.get("acme")
    assert ring is not None
    stored = (tmp_path / "keys" / "acme.key").read_bytes()
    assert base64.b64encode(ring.current.secret) not in stored
    assert b"secret" not in stored
    with pytest.raises(KeyStoreBroken, match="TUNERY_ROOTS_DIR"):
        DirectoryKeyStore(tmp_path / "keys").get("acme")
    (tmp_path / "keys" / "other.key").write_bytes(stored)  # a key of one tenant for another
    swapped = DirectoryKeyStore(tmp_path / "keys", Roots(tmp_path / "roots")).get("other")
    assert swapped is not None
    assert swapped.current.key_id.startswith("acme."), "it seals nothing that is other's"


def test_keys_of_before_there_were_roots_are_read_and_wrapped(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    folder.mkdir()
    secret = base64.b64encode(bytes(range(32))).decode()
    (folder / "acme.key").write_text(json.dumps({"key_id": "acme.1a2b", "secret": secret}))
    sealed = Sealer(DirectoryKeyStore(folder)).seal("acme", "text", "name")
    store = store_with_root(tmp_path)
    assert Sealer(store).open(sealed, "name") == "text"
    (tmp_path / "copy").hardlink_to(folder / "acme.key")
    assert store.wrap_anew("acme")
    assert secret not in (folder / "acme.key").read_text()
    assert not (tmp_path / "copy").read_bytes().strip(), "the old bytes are overwritten"
    assert (
        Sealer(store).open(sealed, "name")
        == Sealer(store_with_root(tmp_path)).open(sealed, "name")
        == "text"
    )
    assert not store.wrap_anew("unknown")


def test_another_process_seals_with_a_new_version_at_once(tmp_path: Path) -> None:
    first, second = store_with_root(tmp_path), store_with_root(tmp_path)
    before = Sealer(second).seal("acme", "before", "name")
    assert first.rotate("acme") is not None
    after = Sealer(second).seal("acme", "after", "name")
    assert before.key_id != after.key_id
    assert [Sealer(first).open(sealed, "name") for sealed in (before, after)] == ["before", "after"]
    second.destroy("acme")
    assert first.rotate("acme") is None
    assert (tmp_path / "keys" / "acme.key").read_bytes() == b""


def test_a_destroyed_key_does_not_come_back_by_wrapping(tmp_path: Path) -> None:
    store = store_with_root(tmp_path)
    store.get("acme")
    store.destroy("acme")
    assert not store.wrap_anew("acme")
    assert store.get("acme") is None
    assert store.tenants() == []
    assert store.stored("acme") is None


def test_the_owner_of_a_root_can_withdraw_it_and_an_outage_is_bridged(tmp_path: Path) -> None:
    now_s = 1_000.0
    (tmp_path / "token").write_text("token")
    with transit_server() as vault:
        where = VaultSettings(vault.address, "tunery", str(tmp_path / "token"))
        describe_vault(tmp_path / "roots", "acme", where)
        store = store_with_root(tmp_path)
        store.get("acme")
        assert store.wrap_anew("acme", "acme")
        file = store.stored("acme")
        assert file is not None
        assert (file.root, [text[:8] for text in file.versions.values()]) == ("acme", ["vault:v1"])
        reader = DirectoryKeyStore(
            tmp_path / "keys", Roots(tmp_path / "roots"), now_s=lambda: now_s
        )
        sealed = Sealer(reader).seal("acme", "text", "name")
        asked = vault.asked
        assert Sealer(reader).open(sealed, "name") == "text"
        assert vault.asked == asked, "a root is not asked for every field"
        vault.sealed = True
        now_s += KEPT_S + 1
        assert Sealer(reader).open(sealed, "name") == "text", "an outage does not stop what runs"
        with pytest.raises(RootUnavailable):
            Sealer(store_with_root(tmp_path)).open(sealed, "name")
        vault.sealed, vault.tokens = False, set()
        now_s += max(AGAIN_S, AWAY_S) + 1
        reader._roots = Roots(tmp_path / "roots")  # as after AWAY_S
        for _ in range(2):
            with pytest.raises(RootRefused, match="permission denied"):
                Sealer(reader).open(sealed, "name")
        assert (
            Sealer(reader).open(Sealer(reader).seal("other", "of others", "name"), "name")
            == "of others"
        )


def test_a_key_that_is_absent_is_not_one_that_was_destroyed(tmp_path: Path) -> None:
    """What another service has not made yet, or a file system does not show yet, is no erasure."""
    gateway, service = DirectoryKeyStore(tmp_path), DirectoryKeyStore(tmp_path, creates=False)
    for ask in (service.get, service.find):
        with pytest.raises(KeyAbsent, match="acme has no key"):
            ask("acme")
    sealed = Sealer(gateway).seal("acme", "text", "name")
    assert Sealer(service).open(sealed, "name") == "text"
    gateway.destroy("acme")
    assert service.get("acme") is service.find("acme") is None
    assert Sealer(service).open(sealed, "name") == REDACTED
    assert Sealer(service).seal("acme", "late", "name").ciphertext == b""
