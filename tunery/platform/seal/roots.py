"""The root keys of an installation: a folder with a JSON file for each, whose name is the root's.

`default.json` wraps the key of every tenant for which no other root was chosen.
"""

import re
from pathlib import Path
from typing import Final

import msgspec

from tunery.platform.seal import file_root, vault_root
from tunery.platform.seal.abstract import KeyStoreBroken, RootKey
from tunery.platform.seal.file_root import FileRoot, create_file_root
from tunery.platform.seal.files import create_file, identity_of
from tunery.platform.seal.vault_root import VaultRoot, VaultSettings

DEFAULT: Final = "default"
SUFFIX: Final = ".json"
NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


class Roots:
    """The root keys of a folder by name; one whose file was replaced is opened anew."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._opened: dict[str, tuple[tuple[int, int, int], RootKey]] = {}

    def root(self, name: str) -> RootKey:
        """Raises KeyStoreBroken."""
        path = root_file(self.folder, name)
        try:
            identity = identity_of(path)
            opened = self._opened.get(name)
            if opened is None or opened[0] != identity:
                opened = identity, open_root(path)
                self._opened[name] = opened
        except OSError as error:
            raise KeyStoreBroken(
                f"{path} cannot be read ({error.strerror}), so data keys that this root wraps "
                "cannot be opened; restore it, or set TUNERY_ROOTS_DIR"
            ) from error
        return opened[1]

    def names(self) -> list[str]:
        return sorted(path.name.removesuffix(SUFFIX) for path in self.folder.glob(f"[!.]*{SUFFIX}"))


def root_file(folder: Path, name: str) -> Path:
    """Raises KeyStoreBroken for what is no name of a root."""
    if not NAME.fullmatch(name):
        raise KeyStoreBroken(
            f"{name[:80]!r} is no name of a root key: use a-z, 0-9, - and _, at most 63 of them"
        )
    return folder / f"{name}{SUFFIX}"


def open_root(path: Path) -> RootKey:
    """The root key that a file has or describes. Raises KeyStoreBroken, OSError."""
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=dict[str, object])
        match kind := stored.pop("kind", None):
            case file_root.KIND:
                return FileRoot(path)
            case vault_root.KIND:
                return VaultRoot(msgspec.convert(stored, VaultSettings))
            case _:
                raise KeyStoreBroken(f"{path} has the kind {kind!r}; there are file and vault")
    except msgspec.MsgspecError as error:
        raise KeyStoreBroken(f"{path} describes no root key: {error}") from error


def create_root(folder: Path, name: str = DEFAULT) -> bool:
    """Make a root key in a file; False where there is one already. Raises KeyStoreBroken."""
    return create_file_root(root_file(folder, name))


def describe_vault(folder: Path, name: str, settings: VaultSettings) -> bool:
    """Write where a root key of Vault is; False where there is a root of this name already.

    Raises KeyStoreBroken.
    """
    path = root_file(folder, name)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    stored = {"kind": vault_root.KIND, **msgspec.to_builtins(settings)}
    return create_file(path, msgspec.json.encode(stored))
