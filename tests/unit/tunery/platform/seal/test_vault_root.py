import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.unit.tunery.platform.seal.transit_server import TransitServer, transit_server
from tunery.platform.seal.abstract import KeyStoreBroken, RootRefused, RootUnavailable
from tunery.platform.seal.vault_root import AWAY_S, VaultRoot, VaultSettings

SECRET = bytes(range(32))


@pytest.fixture
def vault() -> Iterator[TransitServer]:
    with transit_server() as server:
        yield server


@pytest.fixture
def root(vault: TransitServer, tmp_path: Path) -> VaultRoot:
    (tmp_path / "token").write_text("token\n")
    return VaultRoot(VaultSettings(vault.address, "tunery", str(tmp_path / "token")))


def test_what_is_wrapped_unwraps_in_its_context_alone(root: VaultRoot) -> None:
    wrapped = root.wrap(SECRET, b"acme.1")
    assert wrapped.startswith("vault:v1:")
    assert root.unwrap(wrapped, b"acme.1") == SECRET
    with pytest.raises(RootRefused, match="authentication failed"):
        root.unwrap(wrapped, b"other.1")
    with pytest.raises(RootRefused, match="not wrapped by Vault"):
        root.unwrap("file:aa:AAAA", b"acme.1")


def test_earlier_versions_unwrap_until_they_are_forgotten(root: VaultRoot) -> None:
    first = root.wrap(SECRET, b"x")
    root.rotate()
    second = root.wrap(SECRET, b"x")
    assert second.startswith("vault:v2:")
    assert root.unwrap(first, b"x") == root.unwrap(second, b"x") == SECRET
    root.forget()
    assert root.unwrap(second, b"x") == SECRET
    with pytest.raises(RootRefused, match="too old"):
        root.unwrap(first, b"x")


def test_a_withdrawn_token_and_a_deleted_key_are_refusals(
    root: VaultRoot, vault: TransitServer, tmp_path: Path
) -> None:
    wrapped = root.wrap(SECRET, b"x")
    vault.tokens = {"renewed"}
    with pytest.raises(RootRefused, match="permission denied"):
        root.unwrap(wrapped, b"x")
    (tmp_path / "token").write_text("renewed")
    assert root.unwrap(wrapped, b"x") == SECRET
    vault.keys.clear()
    with pytest.raises(RootRefused, match="encryption key not found"):
        root.unwrap(wrapped, b"x")
    (tmp_path / "token").unlink()
    with pytest.raises(KeyStoreBroken, match="token of Vault"):
        root.unwrap(wrapped, b"x")


def test_an_outage_has_its_own_error_and_is_not_retried_at_once(
    root: VaultRoot, vault: TransitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapped = root.wrap(SECRET, b"x")
    vault.sealed, asked = True, vault.asked
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for _ in range(5):
        with pytest.raises(RootUnavailable):
            root.unwrap(wrapped, b"x")
    assert vault.asked == asked + 1
    vault.sealed = False
    monkeypatch.setattr(time, "monotonic", lambda: now + AWAY_S)
    assert root.unwrap(wrapped, b"x") == SECRET


def test_other_servers_and_addresses_are_no_vault(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("token")
    for answer in (b"<html>", b"{}", b"[]", b'{"data":{}}', b'{"data":[]}'):
        transport = httpx.MockTransport(lambda _, body=answer: httpx.Response(200, content=body))
        where = VaultSettings("https://vault.example", "k", str(tmp_path / "token"))
        with pytest.raises(RootUnavailable):
            VaultRoot(where, transport).wrap(SECRET, b"")
    with pytest.raises(RootUnavailable, match="cannot be reached"):
        VaultRoot(VaultSettings("http://127.0.0.1:1", "k", str(tmp_path / "token"))).wrap(b"", b"")
    with pytest.raises(KeyStoreBroken, match="no address"):
        VaultRoot(VaultSettings("vault.example", "k", "token"))
    with pytest.raises(KeyStoreBroken, match="certificates"):
        VaultRoot(VaultSettings("https://vault.example", "k", "t", ca_file="/missing"))


def test_requests_name_mount_key_token_and_namespace(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("token")
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"data": {"ciphertext": "vault:v1:x"}})

    where = VaultSettings(
        "https://vault.example/", "a/b", str(tmp_path / "token"), "keys/eu", "acme"
    )
    VaultRoot(where, httpx.MockTransport(answer)).wrap(SECRET, b"x")
    (request,) = seen
    assert request.url.raw_path == b"/v1/keys/eu/encrypt/a%2Fb"
    assert request.headers["x-vault-token"] == "token"
    assert request.headers["x-vault-namespace"] == "acme"
