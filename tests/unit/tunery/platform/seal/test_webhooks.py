"""Signing secrets and codes of endpoints are derived from the tenant's key."""

from base64 import b64decode

import pytest

from tunery.platform.seal.abstract import KEY_BYTES, KeyDestroyed
from tunery.platform.seal.memory import MemoryKeyStore
from tunery.platform.seal.sealer import Sealer
from tunery.platform.seal.webhooks import confirmation_code, webhook_secret


def test_a_secret_is_written_as_standard_webhooks_does() -> None:
    scheme, _, secret = webhook_secret(Sealer(MemoryKeyStore()), "acme", "we_1", 1).partition("_")
    assert scheme == "whsec"
    assert len(b64decode(secret, validate=True)) == KEY_BYTES


def test_gateway_and_notifier_derive_the_same() -> None:
    keys = MemoryKeyStore()
    assert webhook_secret(Sealer(keys), "acme", "we_1", 1) == webhook_secret(
        Sealer(keys), "acme", "we_1", 1
    )


def test_every_tenant_endpoint_and_version_has_another_secret() -> None:
    sealer = Sealer(MemoryKeyStore())
    sources = [("acme", "we_1", 1), ("acme", "we_1", 2), ("acme", "we_11", 1), ("beta", "we_1", 1)]
    assert len({webhook_secret(sealer, *source) for source in sources}) == len(sources)


def test_after_erasure_there_is_no_secret() -> None:
    keys = MemoryKeyStore()
    keys.destroy("acme")
    with pytest.raises(KeyDestroyed, match="acme"):
        webhook_secret(Sealer(keys), "acme", "we_1", 1)


def test_a_code_is_of_one_address_of_one_endpoint() -> None:
    keys = MemoryKeyStore()
    sources = [
        ("acme", "we_1", "a@b.cd"),
        ("acme", "we_1", "a@b.ce"),
        ("acme", "we_2", "a@b.cd"),
        ("beta", "we_1", "a@b.cd"),
    ]
    codes = {confirmation_code(Sealer(keys), *source) for source in sources}
    assert len(codes) == len(sources)
    assert all(len(code) == 24 and code == code.lower() and code.isalnum() for code in codes)
    assert confirmation_code(Sealer(keys), *sources[0]) in codes
