"""Passwords and keys of one data directory: made once, kept in a file only its owner reads."""

import hashlib
import json
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tunery.local.errors import LocalError

BYTES: Final = 24


@dataclass(frozen=True)
class Secrets:
    """`admin_key` acts as the operator and as tenant `local`; services get its SHA-256 alone."""

    admin_key: str
    postgres_password: str
    s3_access_key: str
    s3_secret_key: str
    valkey_password: str

    @property
    def admin_key_sha256(self) -> str:
        return hashlib.sha256(self.admin_key.encode("ascii")).hexdigest()


def load_or_create(file: Path) -> Secrets:
    """Raises LocalError when the file is there and unreadable: making new ones would lock us out
    of the databases that know the old ones.
    """
    if file.exists():
        return load(file)
    made = Secrets(
        admin_key=f"sk-tunery-{secrets.token_hex(BYTES)}",
        postgres_password=secrets.token_hex(BYTES),
        s3_access_key=secrets.token_hex(8),
        s3_secret_key=secrets.token_hex(BYTES),
        valkey_password=secrets.token_hex(BYTES),
    )
    part = file.with_suffix(".part")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600)
    part.write_text(json.dumps(asdict(made), indent=2) + "\n", encoding="utf-8")
    part.replace(file)
    return made


def load(file: Path) -> Secrets:
    try:
        return Secrets(**json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        raise LocalError(
            f"{file} cannot be read as the stack's secrets",
            f"restore it from a backup, or move {file.parent} away to begin anew",
        ) from None
