"""Folders as a server calls them, and which base model is in one."""

from collections.abc import Mapping
from pathlib import Path

from tunery.platform.blobs.base_files import base_files, default_cache, matches


class ServerFolders:
    """Names of folders at an inference server.

    own: the folder of the engine's adapters
    names: what the server calls a folder of this machine, where that differs: it may see another
    machine's disk, or run in a container
    """

    def __init__(self, own: Path, names: Mapping[str, str]) -> None:
        self._own, self._names = own.absolute(), dict(names)
        self._checked: dict[tuple[object, ...], bool] = {}

    def at_server(self, folder: Path) -> str:
        """Return the path by which a server knows a folder of this machine."""
        for here, there in self._names.items():
            if folder.absolute().is_relative_to(here):
                return str(Path(there) / folder.absolute().relative_to(here))
        return str(folder.absolute())

    def here(self, folder: str) -> Path:
        """The folder of this machine that a server calls so."""
        for here, there in self._names.items():
            if Path(folder).is_relative_to(there):
                return Path(here) / Path(folder).relative_to(there)
        return Path(folder)

    def is_ours(self, folder: str) -> bool:
        """Return whether an adapter at a server comes from the engine's own folder."""
        return self.here(folder).parent == self._own

    def holds(self, folder: str, sha256: str) -> bool:
        """Return whether a folder that a server serves contains the base model with this hash now.

        It is hashed once, and again when a file changes.
        """
        path = self.here(folder)
        try:
            statuses = [(file.name, file.stat()) for file in base_files(path)]
            files = [(name, s.st_size, s.st_mtime_ns, s.st_ino) for name, s in statuses]
            key = (path, sha256, *files)
            if key not in self._checked:
                self._checked[key] = matches(path, sha256, default_cache()) is None
            return self._checked[key]
        except (OSError, ValueError):
            return False  # it is not here, or no base model
