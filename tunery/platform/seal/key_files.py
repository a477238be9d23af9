"""File of a tenant's key: its versions, each wrapped by the root key that it names.

Files from before there were root keys have one version, in the clear. An empty file, or one of
zeroes, says that the key was destroyed.
"""

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tunery.platform.seal.abstract import KEY_BYTES, DataKey, Keyring, KeyStoreBroken, RootKey
from tunery.platform.seal.roots import Roots


@dataclass(frozen=True)
class KeyFile:
    """Content of a key file."""

    root: str | None  # name of the root key that wraps the versions; None: they are in the clear
    versions: dict[str, str]  # versions by name, oldest first, each as text: wrapped, or in base64


def seal_file(ring: Keyring, root: str | None, roots: Roots | None) -> bytes:
    """The content of a file. Raises KeyStoreBroken and what the root key raises."""
    field, wrapping = ("secret", None) if root is None else ("wrapped", _root(roots, root))
    versions = [{"key_id": key.key_id, field: _wrap(key, wrapping)} for key in ring.versions]
    named = {} if root is None else {"root": root}
    return json.dumps({**named, "keys": versions}).encode("utf-8")


def read_file(path: Path) -> KeyFile | None:
    """None for a key that was destroyed. Raises OSError, KeyStoreBroken."""
    body = path.read_bytes()
    if not body.strip(b"\0"):
        return None
    try:
        return _decode(json.loads(body))
    except (ValueError, KeyError, TypeError) as error:
        raise KeyStoreBroken(f"{path} is not a key file; restore it from a backup") from error


def open_file(path: Path, file: KeyFile, roots: Roots | None) -> Keyring:
    """Unwrap all versions. Raises KeyStoreBroken and what the root key raises."""
    wrapping = None if file.root is None else _root(roots, file.root)
    try:
        ring = Keyring(
            tuple(
                DataKey(key_id, _unwrap(key_id, text, wrapping))
                for key_id, text in file.versions.items()
            )
        )
    except ValueError as error:
        raise KeyStoreBroken(f"{path} is not a key file; restore it from a backup") from error
    if any(len(key.secret) != KEY_BYTES for key in ring.versions):
        raise KeyStoreBroken(f"{path} holds a key of the wrong length; restore it from a backup")
    return ring


def _root(roots: Roots | None, name: str) -> RootKey:
    """Raises KeyStoreBroken."""
    if roots is None:
        raise KeyStoreBroken(
            f"data keys are wrapped by the root key {name!r}: set TUNERY_ROOTS_DIR to its folder"
        )
    return roots.root(name)


def _wrap(key: DataKey, root: RootKey | None) -> str:
    if root is None:
        return base64.b64encode(key.secret).decode("ascii")
    return root.wrap(key.secret, key.key_id.encode())


def _unwrap(key_id: str, text: str, root: RootKey | None) -> bytes:
    if root is None:
        return base64.b64decode(text, validate=True)
    return root.unwrap(text, key_id.encode())


def _decode(stored: Any) -> KeyFile:
    """Raises ValueError, KeyError, TypeError."""
    if not isinstance(stored, dict):
        raise TypeError
    entries = stored.get("keys", [stored])
    root = stored.get("root")
    field = "secret" if root is None else "wrapped"
    if not entries:
        raise ValueError
    versions = {str(entry["key_id"]): str(entry[field]) for entry in entries}
    return KeyFile(None if root is None else str(root), versions)
