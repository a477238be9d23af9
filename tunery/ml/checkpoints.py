"""Checkpoints that can be trusted: written whole or not at all, verified before they are used.

    step-00000040/
        adapter_model.safetensors   adapter_config.json   optimizer.safetensors
        model.safetensors   config.json   where every weight is trained, in place of the adapter
        rng.safetensors   rng.json   states of the random generators
        shard-*.safetensors         what each rank has of the optimizer, in place of its file
        progress.json               position, tokens, loss window
        best_adapter.safetensors    weights with the lowest validation loss, where a run wants them
        MANIFEST.json               SHA-256 of each file, the run's fingerprint, the step

Only safetensors and JSON: loading one runs no code. A checkpoint contains no times and no paths, so
two equal runs write equal bytes.
"""

import json
import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from tunery.ml.durable import digest_file, new_directory, remove_directory, remove_partials
from tunery.platform.blobs.files import file_sha256
from tunery.work.events import FileDigest, SkippedCandidate
from tunery.work.spec import ResumeCandidate

MANIFEST: Final = "MANIFEST.json"
FORMAT: Final = 1
STEP_DIR: Final = re.compile(r"step-(\d{8})")


class CheckpointManifest(Struct, frozen=True, kw_only=True):
    format: int
    step: int
    tokens: int  # number of tokens trained until then
    run: dict[str, str]  # fingerprint; a checkpoint with another belongs to another run
    environment: dict[str, str]  # facts that must be equal for a resume to be equal to the bit
    files: tuple[FileDigest, ...]


class Written(Struct, frozen=True, kw_only=True):
    """A checkpoint on disk."""

    dir: str
    manifest_sha256: str
    files: tuple[FileDigest, ...]  # files that the manifest names, and the manifest itself last


class Damaged(Exception):
    """A checkpoint whose bytes are not those its manifest names."""


def write(
    out_dir: Path,
    fill: Callable[[Path], None],
    *,
    step: int,
    tokens: int,
    run: dict[str, str],
    environment: dict[str, str],
) -> Written:
    """Write one checkpoint: `fill` puts files into a directory, the manifest comes last.

    A directory of the same step is replaced: it was written by an attempt that ended.
    Raises Damaged when what was written cannot be read back.
    """
    final = out_dir / f"step-{step:08d}"
    with new_directory(final, last=MANIFEST) as partial:
        fill(partial)
        files = tuple(digest_file(path) for path in sorted(partial.iterdir()))
        manifest = CheckpointManifest(
            format=FORMAT, step=step, tokens=tokens, run=run, environment=environment, files=files
        )
        content = msgspec.json.format(msgspec.json.encode(manifest, order="sorted"), indent=2)
        (partial / MANIFEST).write_bytes(content + b"\n")
    digest = sha256(content + b"\n").hexdigest()
    verify(final, digest)  # read back: only a checkpoint that can be read counts
    manifest_file = FileDigest(name=MANIFEST, sha256=digest, bytes=len(content) + 1)
    return Written(dir=str(final), manifest_sha256=digest, files=(*files, manifest_file))


def verify(directory: Path, manifest_sha256: str) -> CheckpointManifest:
    """Verify every byte of a checkpoint; return its manifest.

    Raises `Damaged` naming the file and what is wrong.
    """
    path = directory / MANIFEST
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Damaged(f"{MANIFEST} cannot be read: {error.strerror}") from error
    if sha256(content).hexdigest() != manifest_sha256:
        raise Damaged(f"{MANIFEST} is not the one that was accepted")
    try:
        manifest = msgspec.json.decode(content, type=CheckpointManifest)
    except msgspec.MsgspecError as error:
        raise Damaged(f"{MANIFEST}: {error}") from error
    if manifest.format != FORMAT:
        raise Damaged(f"format {manifest.format} is not {FORMAT}")
    for file in manifest.files:
        _verify_file(directory / Path(file.name).name, file)
    return manifest


def _verify_file(path: Path, file: FileDigest) -> None:
    if not path.is_file():
        raise Damaged(f"{file.name} is missing")
    if path.stat().st_size != file.bytes:
        raise Damaged(f"{file.name} has {path.stat().st_size} bytes, not {file.bytes}")
    if file_sha256(path) != file.sha256:
        raise Damaged(f"{file.name} does not match its SHA-256")


def choose(
    candidates: Sequence[ResumeCandidate], accepts: Callable[[CheckpointManifest], str | None]
) -> tuple[tuple[ResumeCandidate, CheckpointManifest] | None, tuple[SkippedCandidate, ...]]:
    """Choose the first candidate that verifies and belongs to this run; returns skipped ones, too.

    `accepts` gives a reason against a manifest, or None.
    """
    skipped: list[SkippedCandidate] = []
    for candidate in candidates:
        try:
            manifest = verify(Path(candidate.dir), candidate.manifest_sha256)
            reason = accepts(manifest)
        except Damaged as damaged:
            reason = str(damaged)
        if reason is None:
            return (candidate, manifest), tuple(skipped)
        skipped.append(
            SkippedCandidate(
                dir=candidate.dir, manifest_sha256=candidate.manifest_sha256, reason=reason
            )
        )
    return None, tuple(skipped)


def keep_newest(out_dir: Path, keep: int) -> None:
    """Delete all but the `keep` newest. Call it only after the newest has been verified."""
    steps = sorted(path for path in out_dir.iterdir() if STEP_DIR.fullmatch(path.name))
    for path in steps[:-keep]:
        remove_directory(path)


def prepare(out_dir: Path) -> None:
    """Create the directory, and delete temporary folders of killed writers in it."""
    out_dir.mkdir(parents=True, exist_ok=True)
    remove_partials(out_dir)


def differences(mine: dict[str, str], theirs: dict[str, str]) -> tuple[tuple[str, str, str], ...]:
    """Return the entries in which two fingerprints differ: name, their value, mine."""
    return tuple(
        (name, theirs.get(name, ""), mine.get(name, ""))
        for name in sorted(mine.keys() | theirs.keys())
        if mine.get(name, "") != theirs.get(name, "")
    )


def first_difference(mine: dict[str, str], theirs: dict[str, str]) -> str | None:
    """Describe the first difference of two fingerprints."""
    for name, before, now in differences(mine, theirs)[:1]:
        return f"{name} was {before or None}, is {now or None}"
    return None


def canonical_json(value: object) -> str:
    return f"{json.dumps(value, indent=2, sort_keys=True)}\n"
