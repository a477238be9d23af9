"""Removes backups from a chain, and leaves every record that the newest one has.

Journals only grow, so segments stay, and with them each moment of `tunery restore --until`. What
goes is the rest of a backup: its manifest, and its list of objects, which is the larger part.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from schemas.units import DAY_MS
from tunery.cli.backup.folder import FORMAT, Backup, BackupFolder, LogSegment, Manifest


class Keep(NamedTuple):
    """Rule for the backups that stay: those that either number keeps, and always the newest."""

    newest: int = 0
    daily: int = 0  # days (UTC) that have backups, of which the newest stays


def kept(manifests: Sequence[Manifest], keep: Keep) -> list[Manifest]:
    """Return those of a chain that stay, each with the segments of those before it that do not."""
    by_day = {manifest.cut_ms // DAY_MS: manifest.number for manifest in manifests}
    days = sorted(by_day)[-keep.daily :] if keep.daily else []
    stay = {by_day[day] for day in days}
    stay |= {manifest.number for manifest in manifests[-max(keep.newest, 1) :]}
    left: list[Manifest] = []
    inherited: list[LogSegment] = []
    for manifest in manifests:
        if manifest.number in stay:
            left.append(replace(manifest, segments=(*inherited, *manifest.segments)))
            inherited = []
        else:
            inherited += [replace(s, ends=manifest.ends_of(s)) for s in manifest.segments]
    return left


def add_kept(
    folder: BackupFolder, before: Backup | None, manifest: Manifest, keep: Keep
) -> Manifest:
    """Write a manifest, and with it those of the chain that stay; return it as it was written.

    The chain before is complete until the newest file is there.
    """
    previous = None
    for each in kept((*(before.manifests if before else ()), manifest), keep):
        manifest = replace(each, format=FORMAT, previous=previous)
        previous = folder.add(manifest)
    return manifest
