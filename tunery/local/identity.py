"""The user of PostgreSQL. It refuses to run as root, so root starts it as the user nobody."""

import grp
import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from tunery.local.errors import LocalError


@dataclass(frozen=True)
class Identity:
    uid: int
    gid: int


def unprivileged() -> Identity | None:
    """The user nobody if we are root, else None. Raises LocalError when there is no such user."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        raise LocalError(
            "PostgreSQL refuses to run as root, and this machine has no user `nobody`",
            "run as a normal user, or create the user `nobody`",
        ) from None
    return Identity(entry.pw_uid, entry.pw_gid)


def may_traverse(path: Path, identity: Identity) -> bool:
    """True if `identity` may enter `path` and every folder above it; missing ones are skipped."""
    groups = {identity.gid} | {g.gr_gid for g in grp.getgrall() if "nobody" in g.gr_mem}
    for folder in (path, *path.parents):
        try:
            info = folder.stat()
        except FileNotFoundError:
            continue
        if info.st_uid == identity.uid:
            allowed = info.st_mode & 0o100
        elif info.st_gid in groups:
            allowed = info.st_mode & 0o010
        else:
            allowed = info.st_mode & 0o001
        if not allowed:
            return False
    return True
