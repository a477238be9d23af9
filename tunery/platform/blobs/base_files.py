"""The files of a base model that determine what is trained on it, and their hash.

Every node hashes its copy of a base model before it uses it. Only the files that are read count: a
download tool may leave others next to them, which differ from machine to machine.
"""

import hashlib
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from tunery.platform.blobs.files import file_sha256

CONFIG: Final = "config.json"
WEIGHTS: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
# Configuration, tokenizer and chat template, next to the weights.
NAMES: Final = (
    *(CONFIG, "generation_config.json", INDEX),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("tokenizer.model", "spiece.model", "vocab.json", "vocab.txt", "merges.txt"),
    *("chat_template.jinja", "chat_template.json"),
)
# Those that say how text becomes tokens, how a conversation is written, and what ends an answer.
TOKENIZER_NAMES: Final = tuple(name for name in NAMES if name not in (CONFIG, INDEX))
SETTLED_NS: Final = 2_000_000_000  # a file changed this recently may change again unnoticed
HASHES_MAX: Final = 10_000  # files in a cache of hashes


class CachedHash(Struct, frozen=True):
    """The hash of a file, valid while these properties of the file remain the same."""

    size: int  # bytes
    changed_ns: int  # time of the last change of its content
    inode: int  # number of the file in its file system
    sha256: str  # SHA-256 in hex


def weight_files(folder: Path) -> list[Path]:
    """The weights that transformers loads: one file, those of the index, or any other."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        names = json.loads((folder / INDEX).read_bytes())["weight_map"].values()
        return sorted(folder / name for name in set(names))
    return sorted(path for path in folder.iterdir() if fnmatch(path.name, "*.safetensors"))


def base_files(folder: Path) -> list[Path]:
    """The files of a base model that determine its results, sorted by name.

    Raises `FileNotFoundError` when there is no `config.json`: that is no model directory.
    """
    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(f"{folder} has no {CONFIG}: name a base model directory")
    known = (folder / name for name in NAMES)
    return sorted({*weight_files(folder), *(path for path in known if path.is_file())})


def hash_base(folder: Path, cache: Path | None = None) -> str:
    """SHA-256 over the (name, SHA-256) pairs of a base model's files, sorted by name.

    With `cache`, a file on this node, the content of a file is hashed once, and again only when
    its size, time or inode changes.

    Raises `FileNotFoundError` when there is no `config.json`.
    """
    return _hash_files(folder, base_files(folder), cache)


def matches(folder: Path, sha256: str, cache: Path | None = None) -> str | None:
    """None when a folder holds the base model with this hash, else the hash that it has.

    Bases that were added before only the files that are read counted have a hash over all files.

    Raises `FileNotFoundError` when there is no `config.json`.
    """
    own = hash_base(folder, cache)
    if own == sha256:
        return None
    everything = sorted(path for path in folder.rglob("*") if path.is_file())
    return None if _hash_files(folder, everything, cache) == sha256 else own


def default_cache(environ: Mapping[str, str] | None = None) -> Path:
    """The cache of hashes of this node's user, in XDG's cache folder."""
    env = os.environ if environ is None else environ
    xdg = env.get("XDG_CACHE_HOME")
    return (Path(xdg) if xdg else Path.home() / ".cache") / "tunery" / "base-hashes.json"


def text_config(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration of the language model, which multi-modal models keep in `text_config`."""
    inner = config.get("text_config")
    return {**config, **inner} if isinstance(inner, dict) else config


def _hash_files(folder: Path, files: list[Path], cache: Path | None) -> str:
    known = {} if cache is None else _read_cache(cache)
    fresh: dict[str, CachedHash] = {}
    digest = hashlib.sha256()
    for path in files:
        entry = known.get(str(path.resolve()))
        status = path.stat()
        state = (status.st_size, status.st_mtime_ns, status.st_ino)
        if entry is None or (entry.size, entry.changed_ns, entry.inode) != state:
            entry = CachedHash(*state, file_sha256(path))
            if time.time_ns() - status.st_mtime_ns > SETTLED_NS:
                fresh[str(path.resolve())] = entry
        digest.update(f"{path.relative_to(folder).as_posix()}\0{entry.sha256}\n".encode())
    if cache is not None and fresh:
        _write_cache(cache, {**known, **fresh})
    return digest.hexdigest()


def _read_cache(cache: Path) -> dict[str, CachedHash]:
    """The cached hashes; none when the file is missing or damaged."""
    try:
        return msgspec.json.decode(cache.read_bytes(), type=dict[str, CachedHash])
    except (OSError, msgspec.MsgspecError):
        return {}


def _write_cache(cache: Path, entries: dict[str, CachedHash]) -> None:
    """Write the newest entries aside and rename them; a cache that cannot be written is none."""
    kept = dict(list(entries.items())[-HASHES_MAX:])
    part = cache.with_name(f"{cache.name}.{os.getpid()}")
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(msgspec.json.encode(kept))
        part.replace(cache)
    except OSError:
        with suppress(OSError):
            part.unlink()
