"""Seals bytes to the public key of one reader (X25519, HKDF-SHA256, AES-256-GCM)."""

from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tunery.platform.seal.abstract import SealBroken

KEY_BYTES: Final = 32
NONCE: Final = bytes(12)  # each box has its own key
LABEL: Final = b"tunery box"


def public_key_of(private_key: bytes) -> bytes:
    """The public key of 32 random bytes."""
    return X25519PrivateKey.from_private_bytes(private_key).public_key().public_bytes_raw()


def seal_to(public_key: bytes, text: bytes, seed: bytes) -> bytes:
    """A box with a text, which the private key of `public_key` opens.

    seed: 32 secret bytes that no other text is sealed with.
    Raises ValueError for bytes that are no public key.
    """
    own = public_key_of(seed)
    return own + AESGCM(_shared(seed, public_key, own, public_key)).encrypt(NONCE, text, own)


def open_box(private_key: bytes, box: bytes) -> bytes:
    """The text of a box. Raises SealBroken for one that is damaged or of somebody else."""
    own, body = box[:KEY_BYTES], box[KEY_BYTES:]
    try:
        key = _shared(private_key, own, own, public_key_of(private_key))
        return AESGCM(key).decrypt(NONCE, body, own)
    except (InvalidTag, ValueError) as error:
        raise SealBroken("a box does not open with this private key") from error


def _shared(private_key: bytes, other: bytes, sender: bytes, reader: bytes) -> bytes:
    """The key of a box. Raises ValueError."""
    secret = X25519PrivateKey.from_private_bytes(private_key).exchange(
        X25519PublicKey.from_public_bytes(other)
    )
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=LABEL + sender + reader).derive(secret)
