"""Compares a downloaded folder with what was signed, file by file."""

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from schemas.training import ADAPTER_FILES
from tunery.platform.blobs.base_files import matches
from tunery.platform.blobs.files import file_sha256
from tunery.provenance.envelopes import BUNDLE_BYTES_MAX, read_bundle
from tunery.provenance.keys import Trust, Untrusted
from tunery.provenance.statements import (
    IGNORED,
    LINEAGE_STATEMENT,
    LINEAGE_TYPE,
    SIGNATURE,
    signed_files,
)

_, CONFIG = ADAPTER_FILES
BASE: Final = "base"  # a folder next to the files, in which a download puts the base model
CONFIG_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True)
class ComparedFile:
    """A file that is signed, or lies next to signed files."""

    name: str
    difference: str | None = None  # None: it is as signed
    note: str = ""  # what a reader should know of an equal file


def compare_folder(
    folder: Path, trust: Trust, at: datetime, bases: Collection[str] = ()
) -> list[ComparedFile]:
    """Each file of a folder, and each that is missing, except the signature `SIGNATURE`.

    at: when certificates must be valid
    bases: names of the base model that `adapter_config.json` may have instead of the signed one;
      one with a revision is NAME@REVISION

    Raises Untrusted when there is no signature of anyone whom we trust.
    """
    statement = _read(folder / SIGNATURE, trust, at)
    signed = signed_files(statement)
    lineage = _lineage(folder, trust, at) if LINEAGE_STATEMENT in signed else None
    names = sorted({*signed, *_names(folder, lineage is not None)})
    return [_compare(folder, name, signed.get(name), lineage, bases) for name in names]


def _lineage(folder: Path, trust: Trust, at: datetime) -> dict[str, Any] | Untrusted:
    try:
        statement = _read(folder / LINEAGE_STATEMENT, trust, at)
        if statement["predicateType"] != LINEAGE_TYPE:
            return Untrusted(f"{statement['predicateType']!r} is no lineage")
    except Untrusted as error:
        return error
    return statement


def _read(file: Path, trust: Trust, at: datetime) -> dict[str, Any]:
    try:
        if file.is_symlink() or file.stat().st_size > BUNDLE_BYTES_MAX:
            raise Untrusted(f"{file.name} is a link, or too large to be a signature")
        return read_bundle(file.read_bytes(), trust, at)
    except FileNotFoundError:
        raise Untrusted(f"{file.parent} has no {file.name}: nobody signed it") from None
    except OSError as error:
        raise Untrusted(f"{file.name} cannot be read: {error.strerror}") from error
    except Untrusted as error:
        raise Untrusted(f"{file.name}: {error}") from None


def _names(folder: Path, with_base: bool) -> list[str]:
    """Files below a folder; the base model, which has its own hash, as one name."""
    names = []
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if name.parts[0] in IGNORED:
            continue
        if with_base and name.parts[0] == BASE:
            names.append(BASE)
        elif path.is_symlink() or not path.is_dir():
            names.append(name.as_posix())
    return names


def _compare(
    folder: Path,
    name: str,
    sha256: str | None,
    lineage: dict[str, Any] | Untrusted | None,
    bases: Collection[str],
) -> ComparedFile:
    path = folder / name
    if name == BASE and sha256 is None:
        base = _base_of(lineage)
        if base is None:
            return ComparedFile(BASE, "no lineage says which base model belongs here")
        if _is_base(path, base[1]):
            return ComparedFile(BASE, note=f"the files of {base[0]}")
        return ComparedFile(BASE, f"its files are not those of {base[0]}")
    if sha256 is None:
        return ComparedFile(name, "it is not signed: it was added")
    if path.is_symlink():
        return ComparedFile(name, "it is a link, not the signed file")
    try:
        equal = file_sha256(path) == sha256
    except OSError as error:
        return ComparedFile(name, f"it is missing: {error.strerror}")
    if name == LINEAGE_STATEMENT and isinstance(lineage, Untrusted):
        return ComparedFile(name, str(lineage))
    if equal:
        return ComparedFile(name)
    if name == CONFIG and not isinstance(lineage, Untrusted) and lineage is not None:
        return _compare_config(path, sha256, lineage, bases)
    return ComparedFile(name, "it differs from the signed file")


def _compare_config(
    path: Path, sha256: str, lineage: dict[str, Any], bases: Collection[str]
) -> ComparedFile:
    """A configuration may name its base model where it is at hand, and differ in nothing else."""
    base = _base_of(lineage)
    named = None if base is None else _named_base(path, sha256, base[0])
    if base is None or named is None:
        return ComparedFile(CONFIG, "it differs from the signed file")
    # A relative path would be looked for in the working directory, a hub's name as well.
    folder = Path(named) if Path(named).is_absolute() else None
    if named in bases or (folder is not None and _is_base(folder, base[1])):
        return ComparedFile(CONFIG, note=f"names the base model {named}; else as signed")
    is_gone = folder is not None and not folder.exists()
    if is_gone and _is_base(path.parent / BASE, base[1]):
        return ComparedFile(
            CONFIG,
            note=f"names the base model {named}, which is not here; {BASE}/ has its files: "
            "`tunery model where FOLDER` names that",
        )
    return ComparedFile(
        CONFIG, f"it names the base model {named}, signed is {base[0]}: --base {named} permits it"
    )


def _named_base(path: Path, sha256: str, base_id: str) -> str | None:
    """The base model of a configuration that differs in nothing else from the signed one."""
    try:
        config = json.loads(path.read_bytes()[:CONFIG_BYTES_MAX])
        name, revision = config.pop("base_model_name_or_path"), config.pop("revision", None)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return None
    config["base_model_name_or_path"] = base_id
    for signed in (config, {**config, "revision": None}):
        text = json.dumps(signed, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        if hashlib.sha256(text.encode()).hexdigest() == sha256:
            return str(name) if revision is None else f"{name}@{revision}"
    return None


def _base_of(lineage: dict[str, Any] | Untrusted | None) -> tuple[str, str] | None:
    """Id and hash of the base model."""
    if lineage is None or isinstance(lineage, Untrusted):
        return None
    for entry in lineage["predicate"]["buildDefinition"]["resolvedDependencies"]:
        kind, _, base_id = entry["name"].partition(":")
        if kind == "base":
            return base_id, entry["digest"]["sha256"]
    return None


def _is_base(folder: Path, sha256: str) -> bool:
    try:
        return matches(folder, sha256) is None
    except (OSError, ValueError, KeyError):
        return False
