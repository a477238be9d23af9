"""The keys of one lease as they are handed to its agent, which has no key store."""

import msgspec
from msgspec import Struct

from schemas.sealed import Sealed, SealedField
from tunery.platform.blobs.frames import PathKey
from tunery.platform.blobs.path_keys import LeasePathKeys
from tunery.platform.seal.absent import NoKeys
from tunery.platform.seal.abstract import DataKey, KeyStoreBroken
from tunery.platform.seal.sealer import Sealer, open_with, seal_with


class HandedPath(Struct, frozen=True, array_like=True):
    """A key of blobs."""

    path: str  # path of a blob, or of a folder with a slash at its end
    # version, secret: see `PathKey`
    version: bytes
    secret: bytes
    writes: bool = False  # whether it is for writing below this folder


class HandedText(Struct, frozen=True, array_like=True):
    """Plaintext of a sealed text, which key_id and nonce identify."""

    key_id: str
    nonce: bytes
    text: str


class HandedKeys(Struct, frozen=True):
    """All keys and texts that a lease is given."""

    texts: tuple[HandedText, ...] = ()  # texts of its work
    paths: tuple[HandedPath, ...] = ()  # keys of the blobs that it may read and write
    # seal_id, seal_secret: key with which all agents of the lease seal texts; they and services
    # open them, and it opens no others
    seal_id: str = ""
    seal_secret: bytes = b""
    problem: str = ""  # why it is given nothing; empty: it is given all that it needs


def encode_keys(keys: HandedKeys) -> bytes:
    """Encode keys as the message that is then sealed to the agent."""
    return msgspec.msgpack.encode(keys)


def decode_keys(content: bytes) -> HandedKeys:
    """Raises msgspec.DecodeError."""
    return msgspec.msgpack.decode(content, type=HandedKeys)


class LeaseSealer(Sealer):
    """Seals and opens texts of one lease, with what it was handed.

    tenant: whose lease it is
    """

    def __init__(self, tenant: str) -> None:
        super().__init__(NoKeys("trainer"))
        self._tenant = tenant
        self._key: DataKey | None = None
        self._texts: dict[tuple[str, bytes], str] = {}

    def take(self, keys: HandedKeys) -> None:
        """Use these keys from now on."""
        self._key = DataKey(keys.seal_id, keys.seal_secret)
        self._texts = {(text.key_id, text.nonce): text.text for text in keys.texts}

    def seal(self, tenant: str, text: str, field: SealedField) -> Sealed:
        """Raises KeyStoreBroken for another tenant, and before there are keys."""
        if self._key is None or tenant != self._tenant:
            raise KeyStoreBroken(f"this lease was given no key to seal texts of tenant {tenant}")
        return seal_with(self._key, text, field, self._draw)

    def open(self, sealed: Sealed, field: SealedField, *others: SealedField) -> str:
        """A text that it was given, or that an agent of the same lease has sealed.

        Raises KeyStoreBroken for another one.
        """
        text = self._texts.get((sealed.key_id, sealed.nonce))
        if text is not None:
            return text
        if self._key is None or sealed.key_id != self._key.key_id:
            raise KeyStoreBroken(f"this lease was given no key of this text: {field}")
        return open_with(self._key, sealed, field, *others)


def hand_paths(keys: HandedKeys, path_keys: LeasePathKeys) -> None:
    """Let a lease read and write what it was given."""
    for handed in keys.paths:
        key = PathKey(handed.version, handed.secret)
        if handed.writes:
            path_keys.add_folder(handed.path, key)
        else:
            path_keys.add(handed.path, (key,))
