"""Passwords and keys of a data directory: created once, in a file that only its owner reads."""

import contextlib
import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tunery.local.errors import LocalError

if TYPE_CHECKING:
    from tunery.runtime.bus.signing import SenderKeys

BYTES: Final = 24
_TEXT: Final = re.compile(r"[!-~]+")  # fits into a header and a command line


@dataclass(frozen=True)
class Secrets:
    """Secrets of a stack. The admin key is for the operator; services get only its SHA-256."""

    admin_key: str
    postgres_password: str
    s3_access_key: str
    s3_secret_key: str
    valkey_password: str
    kafka_secret: str
    command_secret: str
    commands_signed_since: str

    def kafka_password(self, principal: str) -> str:
        """The password of a principal on Kafka: of services, nodes, operators, the broker.

        Each follows from one secret, so a node may be added at any time, and no password leads to
        another one.
        """
        return _derived(self.kafka_secret, f"kafka/{principal}")

    def role_password(self, service: str) -> str:
        """The password of a service's role of PostgreSQL; it does not lead to the operator's."""
        return _derived(self.postgres_password, f"postgres/{service}")

    def s3_password(self, principal: str) -> str:
        """The secret key of a principal at S3; its access key is its name."""
        return _derived(self.s3_secret_key, f"s3/{principal}")

    def sender_keys(self, principal: str = "") -> "SenderKeys":
        """Return the keys with which a principal signs commands; the operator's keys without one.

        Commands from before `commands_signed_since` (ms) are not checked.
        """
        # most commands of the command line read a password here, and need no schemas
        from tunery.platform.bus.sender_keys import keys_of
        from tunery.runtime.bus.signing import operator_keys

        secret, since = self.command_secret.encode("ascii"), int(self.commands_signed_since)
        if not principal:
            return operator_keys(secret, signed_since=since)
        return keys_of(secret, principal, since)

    @property
    def admin_key_sha256(self) -> str:
        return hashlib.sha256(self.admin_key.encode("ascii")).hexdigest()


def _derived(secret: str, name: str) -> str:
    """A password that follows from a secret, does not lead back to it, nor to another one."""
    return hmac.digest(secret.encode("ascii"), name.encode(), "sha256").hex()


def load_or_create(file: Path) -> Secrets:
    """Read the secrets, or create them if there is no file.

    Raises LocalError when the file is unreadable: new secrets would not open the old databases.
    """
    with contextlib.suppress(FileNotFoundError):
        _complete(file)
        return load(file)
    created = Secrets(
        admin_key=f"sk-tunery-{secrets.token_hex(BYTES)}",
        postgres_password=secrets.token_hex(BYTES),
        s3_access_key=secrets.token_hex(8),
        s3_secret_key=secrets.token_hex(BYTES),
        valkey_password=secrets.token_hex(BYTES),
        **_later(),
    )
    write_private(file, asdict(created))
    return created


def write_private(file: Path, content: Mapping[str, str]) -> None:
    """Write a file as a whole, for its owner alone."""
    part = file.with_suffix(".part")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600)
    part.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    part.replace(file)


def _later() -> dict[str, str]:
    """New secrets that earlier versions, whose Kafka and owners had no authentication, lack."""
    return {
        "kafka_secret": secrets.token_hex(BYTES),
        "command_secret": secrets.token_hex(BYTES),
        "commands_signed_since": str(time.time_ns() // 1_000_000),
    }


def _complete(file: Path) -> None:
    """Add what an earlier version did not have."""
    try:
        stored = _stored(file)
    except (OSError, ValueError, RecursionError):
        return  # `load` explains it
    if _is_earlier(stored):
        completed = Secrets(**(_later() | stored))
        if _is_valid(completed):
            write_private(file, asdict(completed))


def _is_earlier(stored: object) -> bool:
    names = {field.name for field in fields(Secrets)}
    return isinstance(stored, dict) and names - _later().keys() <= stored.keys() < names


def load(file: Path) -> Secrets:
    """Read the secrets.

    Raises FileNotFoundError when there is no file, LocalError when it is unreadable or not valid.
    """
    try:
        stored = _stored(file)
        if _is_earlier(stored):
            raise LocalError(
                f"{file} is of an earlier version, which did not ask who writes to Kafka",
                "`tunery down` and `tunery up` complete it",
            )
        loaded = Secrets(**stored)
        if not _is_valid(loaded):
            raise TypeError
    except FileNotFoundError:
        raise
    except OSError as error:
        raise LocalError(
            f"{file} cannot be read: {error.strerror}",
            "run the command as the user who owns the data directory, or choose another one with "
            "--data-dir DIRECTORY",
        ) from error
    except (ValueError, TypeError, RecursionError):
        raise LocalError(
            f"{file} does not hold valid secrets of a stack",
            f"restore it from a backup, or move {file.parent} away to start with an empty stack",
        ) from None
    return loaded


def _stored(file: Path) -> Any:
    """Raises OSError, ValueError, RecursionError."""
    return json.loads(file.read_text(encoding="utf-8"))


def _is_valid(loaded: Secrets) -> bool:
    texts = all(
        isinstance(value, str) and _TEXT.fullmatch(value) for value in vars(loaded).values()
    )
    return texts and loaded.commands_signed_since.isdecimal()
