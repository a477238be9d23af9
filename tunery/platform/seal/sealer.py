"""Seals text under a tenant's data key, and derives the tenant's other secrets from it."""

import hashlib
import hmac as hmac_module
from base64 import b32decode, b32encode
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from schemas.sealed import REDACTED, Sealed, SealedField
from tunery.platform.blobs.frames import PathKey
from tunery.platform.blobs.path_keys import TenantPathKeys
from tunery.platform.seal.abstract import (
    KEY_BYTES,
    DataKey,
    KeyDestroyed,
    Keyring,
    KeyStore,
    SealBroken,
)
from tunery.platform.seal.memory import random_bytes

NONCE_BYTES: Final = 12
DERIVED_KEPT_MAX: Final = 4_096
NO_KEY: Final = "destroyed"
WORD_KEYS: Final = ("mac", "cipher")  # AES-256-SIV has a key for each
BASE32_GROUP: Final = 8
SCOPE: Final = "/"  # between a data key's version and whom one that follows from it is for


class Sealer:
    """AES-256-GCM; the key's id and what the text is are authenticated with it.

    draw: makes nonces.
    """

    def __init__(self, keys: KeyStore, draw: Callable[[int], bytes] = random_bytes) -> None:
        self._keys = keys
        self._draw = draw

    def seal(self, tenant: str, text: str, field: SealedField) -> Sealed:
        """Sealed text, which opens as this field alone.

        For an erased tenant the text is dropped: nothing readable is written.
        """
        ring = self._keys.get(tenant)
        if ring is None:
            return Sealed(key_id=NO_KEY, nonce=b"", ciphertext=b"")
        return seal_with(ring.current, text, field, self._draw)

    def open(self, sealed: Sealed, field: SealedField, *others: SealedField) -> str:
        """The text, or REDACTED when its key is gone.

        field, others: what it may be; texts of before that was authenticated open as any.
        Raises SealBroken for damaged bytes, and for another field.
        """
        tenant, dot, rest = sealed.key_id.rpartition(".")
        version, _, scope = rest.partition(SCOPE)
        key_id = f"{tenant}{dot}{version}"
        ring = self._keys.find(tenant) if tenant else None
        key = None if ring is None else ring.version(key_id)
        if key is None:
            return REDACTED
        return open_with(_scoped(key, scope) if scope else key, sealed, field, *others)

    def hmac(self, tenant: str, data: bytes | str) -> str:
        """Hex HMAC-SHA256 under its own key. Raises KeyDestroyed."""
        body = data.encode("utf-8") if isinstance(data, str) else data
        return hmac_module.new(self._derive(tenant, "hmac"), body, hashlib.sha256).hexdigest()

    def seal_word(self, tenant: str, word: str) -> str:
        """The word sealed (AES-256-SIV), as small letters and digits: always the same for one word.

        So it may be part of an identifier. Who has no key sees its length, and which are equal.
        Raises KeyDestroyed.
        """
        sealed = _word_cipher(self._ring(tenant).first).encrypt(word.encode("utf-8"), None)
        return b32encode(sealed).decode("ascii").rstrip("=").lower()

    def open_word(self, tenant: str, sealed: str) -> str | None:
        """Decrypt a word of `seal_word`; None if it is none, or its key is gone. Makes no key."""
        ring = self._keys.find(tenant)
        if ring is None:
            return None
        padding = "=" * (-len(sealed) % BASE32_GROUP)
        with suppress(InvalidTag, ValueError):
            word = b32decode(sealed.upper() + padding)
            return _word_cipher(ring.first).decrypt(word, None).decode("utf-8")
        return None

    def verify(self, tenant: str, data: bytes | str, mac: str) -> bool:
        """Return whether `mac` is the HMAC of the data; False for a tenant without a key.

        Never makes a key. Raises KeyDestroyed.
        """
        return self._keys.find(tenant) is not None and hmac_module.compare_digest(
            self.hmac(tenant, data).encode(), mac.encode()
        )

    def path_keys(self, tenant: str, path: str) -> tuple[PathKey, ...]:
        """Return the keys of all blobs at one path, for a process that has no data keys."""
        return TenantPathKeys(self._keys).all(tenant, path)

    def folder_key(self, tenant: str, folder: str) -> PathKey:
        """With which a process without data keys writes blobs below one folder."""
        return TenantPathKeys(self._keys).current(tenant, folder)

    def scoped_key(self, tenant: str, scope: str) -> DataKey:
        """With which a process without data keys seals texts, that services open as any other.

        scope: scope of these processes alone. It opens nothing that was sealed with another key.
        Raises KeyDestroyed.
        """
        return _scoped(self._ring(tenant).current, scope)

    def secret(self, tenant: str, *info: str | int) -> bytes:
        """32 bytes that follow from the tenant's first key and `info`. Raises KeyDestroyed."""
        return self._derive(tenant, "secret", *(str(part) for part in info))

    def destroy(self, tenant: str) -> None:
        """Erase everything that was ever sealed for the tenant."""
        self._keys.destroy(tenant)

    def _derive(self, tenant: str, *info: str) -> bytes:
        return _hkdf(self._ring(tenant).first, info)

    def _ring(self, tenant: str) -> Keyring:
        ring = self._keys.get(tenant)
        if ring is None:
            raise KeyDestroyed(tenant)
        return ring


def seal_with(
    key: DataKey, text: str, field: SealedField, draw: Callable[[int], bytes] = random_bytes
) -> Sealed:
    """Sealed text, with a key that is at hand."""
    nonce = draw(NONCE_BYTES)
    body = AESGCM(key.secret).encrypt(nonce, text.encode("utf-8"), _bound(key.key_id, field))
    return Sealed(key_id=key.key_id, nonce=nonce, ciphertext=body)


def open_with(key: DataKey, sealed: Sealed, field: SealedField, *others: SealedField) -> str:
    """The text, with a key that is at hand. Raises SealBroken, as `Sealer.open`."""
    cipher, unbound, fields = AESGCM(key.secret), key.key_id.encode(), (field, *others)
    for bound in (*(_bound(key.key_id, name) for name in fields), unbound):
        with suppress(InvalidTag, ValueError):
            return cipher.decrypt(sealed.nonce, sealed.ciphertext, bound).decode("utf-8")
    shown = " or ".join(fields)
    raise SealBroken(f"a field sealed with {sealed.key_id} does not open as {shown}")


def _word_cipher(first: DataKey) -> AESSIV:
    """Return the deterministic cipher of words; it uses the first key, so rotations keep it."""
    return AESSIV(b"".join(_hkdf(first, ("word", name)) for name in WORD_KEYS))


def _scoped(key: DataKey, scope: str) -> DataKey:
    return DataKey(f"{key.key_id}{SCOPE}{scope}", _hkdf(key, ("scope", scope)))


def _bound(key_id: str, field: SealedField) -> bytes:
    """Return the associated data of a sealed text; no key id contains a zero byte."""
    return f"{key_id}\0{field}".encode()


@lru_cache(maxsize=DERIVED_KEPT_MAX)
def _hkdf(key: DataKey, info: tuple[str, ...]) -> bytes:
    # lengths in front, so that ("a", "bc") and ("ab", "c") never give the same secret
    label = b"".join(len(part.encode()).to_bytes(4, "big") + part.encode() for part in info)
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=label).derive(key.secret)
