"""The contract of `KeyStore`. Subclasses define an empty fixture `keys`."""

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from schemas.sealed import REDACTED, Sealed
from tunery.platform.seal.abstract import KEY_BYTES, KeyDestroyed, KeyStore, SealBroken
from tunery.platform.seal.sealer import Sealer


class KeyStoreSuite:
    def test_what_is_sealed_opens(self, keys: KeyStore) -> None:
        sealer = Sealer(keys)
        sealed = sealer.seal("acme", "my-file ü.jsonl", "name")
        assert b"my-file" not in sealed.ciphertext
        assert sealer.open(sealed, "name") == "my-file ü.jsonl"
        assert Sealer(keys).open(sealed, "name") == "my-file ü.jsonl"
        assert (
            sealer.seal("acme", "same", "name").ciphertext
            != sealer.seal("acme", "same", "name").ciphertext
        )

    def test_an_erased_tenant_reads_as_redacted_and_others_do_not(self, keys: KeyStore) -> None:
        sealer = Sealer(keys)
        mine, other = sealer.seal("acme", "secret", "name"), sealer.seal("other", "kept", "name")
        sealer.destroy("acme")
        sealer.destroy("acme")
        assert sealer.open(mine, "name") == REDACTED
        assert sealer.open(other, "name") == "kept"
        later = sealer.seal("acme", "written after the erasure", "name")
        assert later.ciphertext == b""
        assert sealer.open(later, "name") == REDACTED
        with pytest.raises(KeyDestroyed, match="acme"):
            sealer.hmac("acme", b"x")
        with pytest.raises(KeyDestroyed):
            sealer.secret("acme", "webhook")

    def test_an_unknown_tenant_has_no_key_to_open_with(self, keys: KeyStore) -> None:
        assert keys.find("unknown") is None
        assert (
            Sealer(keys).open(Sealed(key_id="unknown.1", nonce=b"", ciphertext=b""), "name")
            == REDACTED
        )
        assert Sealer(keys).open(Sealed(key_id="", nonce=b"", ciphertext=b""), "name") == REDACTED
        assert keys.find("unknown") is None

    def test_damaged_bytes_do_not_open(self, keys: KeyStore) -> None:
        sealer = Sealer(keys)
        sealed = sealer.seal("acme", "text", "name")
        flipped = sealed.ciphertext[:-1] + bytes([sealed.ciphertext[-1] ^ 1])
        for damaged in (
            Sealed(sealed.key_id, sealed.nonce, flipped),
            Sealed(sealed.key_id, b"", sealed.ciphertext),
            Sealed(sealed.key_id, sealed.nonce, b""),
        ):
            with pytest.raises(SealBroken, match="does not open"):
                sealer.open(damaged, "name")

    def test_derived_secrets_follow_from_tenant_and_use(self, keys: KeyStore) -> None:
        sealer = Sealer(keys)
        assert (
            sealer.hmac("a", b"body") == sealer.hmac("a", "body") == Sealer(keys).hmac("a", b"body")
        )
        assert len({sealer.hmac("a", b"x"), sealer.hmac("b", b"x"), sealer.hmac("a", b"y")}) == 3
        secrets = [
            sealer.secret("a", "we_1", 1),
            sealer.secret("a", "we_1", 2),
            sealer.secret("a", "we_11", ""),
            sealer.secret("b", "we_1", 1),
        ]
        assert len(set(secrets)) == 4
        assert {len(secret) for secret in secrets} == {KEY_BYTES}

    def test_versions_of_a_rotated_key_open_what_they_sealed(self, keys: KeyStore) -> None:
        sealer = Sealer(keys)
        first, secret = sealer.seal("acme", "first", "name"), sealer.secret("acme", "webhook")
        ring = keys.rotate("acme")
        assert ring is not None
        second = sealer.seal("acme", "second", "name")
        assert second.key_id == ring.current.key_id != first.key_id == ring.first.key_id
        assert [sealer.open(first, "name"), sealer.open(second, "name")] == ["first", "second"]
        assert sealer.secret("acme", "webhook") == secret, "what is derived stays"
        sealer.destroy("acme")
        assert [sealer.open(first, "name"), sealer.open(second, "name")] == [REDACTED, REDACTED]
        assert keys.rotate("acme") is None
        assert keys.find("acme") is None

    def test_security_a_field_does_not_open_in_place_of_another(self, keys: KeyStore) -> None:
        sealer = Sealer(keys)
        name = sealer.seal("acme", "https://evil.example/", "name")
        assert sealer.open(name, "name") == sealer.open(name, "url", "name")
        with pytest.raises(SealBroken, match="does not open as url or suffix"):
            sealer.open(name, "url", "suffix")

    def test_texts_of_before_the_field_was_authenticated_open(self, keys: KeyStore) -> None:
        ring = keys.get("acme")
        assert ring is not None
        key, nonce = ring.current, bytes(12)
        body = AESGCM(key.secret).encrypt(nonce, b"old", key.key_id.encode())
        assert Sealer(keys).open(Sealed(key.key_id, nonce, body), "name") == "old"
