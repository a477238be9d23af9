"""A root key in a file, for one machine: all of its versions, the newest last."""

import base64
import json
import os
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tunery.platform.seal.abstract import KEY_BYTES, KeyStoreBroken, RootRefused
from tunery.platform.seal.files import create_file, identity_of, lock_folder, replace_file

KIND: Final = "file"
NONCE_BYTES: Final = 12


class FileRoot:
    """Implements `RootKey`. The file is read again when another process has replaced it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._versions: dict[str, bytes] = {}
        self._identity = (0, 0, 0)

    def wrap(self, secret: bytes, context: bytes) -> str:
        version, key = list(self._read().items())[-1]
        nonce = os.urandom(NONCE_BYTES)
        body = nonce + AESGCM(key).encrypt(nonce, secret, _bound(version, context))
        return f"{KIND}:{version}:{base64.b64encode(body).decode('ascii')}"

    def unwrap(self, wrapped: str, context: bytes) -> bytes:
        """Raises RootRefused for another root, version or context; KeyStoreBroken."""
        kind, _, rest = wrapped.partition(":")
        version, _, text = rest.partition(":")
        key = self._read().get(version) if kind == KIND else None
        if key is None:
            raise RootRefused(
                f"{self._path} has no version {version!r} of the root key; restore it from a backup"
            )
        try:
            body = base64.b64decode(text, validate=True)
            return AESGCM(key).decrypt(
                body[:NONCE_BYTES], body[NONCE_BYTES:], _bound(version, context)
            )
        except (InvalidTag, ValueError) as error:
            raise RootRefused(
                f"a data key does not open with {self._path}; restore both from one backup"
            ) from error

    def rotate(self) -> None:
        with lock_folder(self._path.parent):
            replace_file(self._path, _encode({**self._read(), **_draw()}))

    def forget(self) -> None:
        with lock_folder(self._path.parent):
            replace_file(self._path, _encode(dict(list(self._read().items())[-1:])))

    def _read(self) -> dict[str, bytes]:
        """Secrets by the names of their versions, oldest first. Raises KeyStoreBroken."""
        try:
            identity = identity_of(self._path)
            if identity != self._identity:
                stored = json.loads(self._path.read_bytes())
                versions = {
                    str(version["id"]): base64.b64decode(version["secret"], validate=True)
                    for version in stored["versions"]
                }
                if not versions or any(len(key) != KEY_BYTES for key in versions.values()):
                    raise ValueError
                self._versions = versions
                self._identity = identity
        except OSError as error:
            raise KeyStoreBroken(f"{self._path} cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise KeyStoreBroken(
                f"{self._path} is no root key; restore it from a backup"
            ) from error
        return self._versions


def create_file_root(path: Path) -> bool:
    """Make a root key, mode 0600; False where there is one already. Raises KeyStoreBroken."""
    if path.exists():
        return False
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return create_file(path, _encode(_draw()))


def _draw() -> dict[str, bytes]:
    return {os.urandom(4).hex(): os.urandom(KEY_BYTES)}


def _bound(version: str, context: bytes) -> bytes:
    return f"{KIND}:{version}:".encode("ascii") + context


def _encode(versions: dict[str, bytes]) -> bytes:
    written = [
        {"id": version, "secret": base64.b64encode(key).decode("ascii")}
        for version, key in versions.items()
    ]
    return json.dumps({"kind": KIND, "versions": written}).encode("ascii")
