"""Accounts at Kafka and S3, and settings, that `tunery node enrol` gives a node with its keys."""

import asyncio
import os
import secrets
from pathlib import Path
from typing import Final

import click

from tunery.local.errors import LocalError
from tunery.local.paths import DataDir

PASSWORD_BYTES: Final = 24
MECHANISM: Final = "SCRAM-SHA-512"


class NodeAccounts:
    """Accounts of one node: first what it must know of them, then they themselves.

    Where Kafka and S3 are those of `tunery up`, passwords are the ones that an agent beside it
    would have. Raises LocalError.
    """

    def __init__(self, folders: DataDir, node: str) -> None:
        from schemas.streams import NODE_PREFIX
        from tunery.local.settings import log_settings, of_stack, replaced

        self.principal = f"{NODE_PREFIX}{node}"
        self._operator = log_settings(folders, os.environ)
        own = replaced(os.environ)
        has_stack = folders.secrets.is_file() and not {"kafka", "s3"} <= own
        self._stack = of_stack(folders, os.environ) if has_stack else None
        self._password = secrets.token_hex(PASSWORD_BYTES)
        if self._stack is not None and "kafka" not in own:
            self._password = self._stack.keys.kafka_password(self.principal)
        self._has_own_s3 = "s3" in own
        if not self._operator.kafka_security_protocol.startswith("SASL_"):
            raise LocalError(
                "--accounts makes an account with a password, and this Kafka is used without",
                "set TUNERY_KAFKA_SECURITY_PROTOCOL=SASL_SSL and the login of an operator",
            )

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment variables by which the node reaches Kafka and S3."""
        login = {
            "TUNERY_KAFKA_BOOTSTRAP": self._operator.kafka_bootstrap,
            "TUNERY_KAFKA_SECURITY_PROTOCOL": self._operator.kafka_security_protocol,
            "TUNERY_KAFKA_SASL_MECHANISM": MECHANISM,
            "TUNERY_KAFKA_USERNAME": self.principal,
            "TUNERY_KAFKA_PASSWORD": self._password,
        }
        if self._has_own_s3 or self._stack is None:
            return login
        named = ("ENDPOINT", "BUCKET", "ACCESS_KEY", "SECRET_KEY")
        known = self._stack.environment(self.principal)
        return login | {f"TUNERY_S3_{name}": known[f"TUNERY_S3_{name}"] for name in named}

    def create(self) -> None:
        """Make the accounts, or give them their new passwords. Raises LocalError."""
        from tunery.local.ports import read
        from tunery.local.s3_accounts import provide_accounts
        from tunery.platform.bus.preparation import add_account
        from tunery.platform.connections import patient_kafka_settings
        from tunery.runtime.bus.abstract import BusError

        kafka = patient_kafka_settings(self._operator)
        try:
            asyncio.run(add_account(kafka, self.principal, self._password))
        except BusError as error:
            raise LocalError(
                f"the account of {self.principal} was not made: {error}",
                "log in to Kafka as an operator: see docs/how-to/secure-kafka.md",
            ) from error
        if self._stack is not None and not self._has_own_s3:
            folders, bucket = self._stack.folders, self._stack.s3_bucket
            port, folder = read(folders.ports)["s3"], folders.server("s3")
            provide_accounts(folder, port, self._stack.keys, bucket, [self.principal])


def read_variables(file: Path | None) -> dict[str, str]:
    """Variables of a file with lines NAME=value; none without a file. Raises UsageError."""
    if file is None:
        return {}
    lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    if wrong := [name for name, sign, _ in pairs if not sign]:
        raise click.UsageError(f"--settings {file}: {wrong[0]} is no line NAME=value")
    return {name: value for name, _, value in pairs}


def seal(node: str, variables: dict[str, str]) -> tuple[str, str]:
    """Encrypt a node's settings. Raises UsageError.

    Returns the suffix of the token, which holds the key, and the sealed settings to send.
    """
    from tunery.platform.node_settings import SEPARATOR, seal_settings

    half = secrets.token_urlsafe(32)
    try:
        return f"{SEPARATOR}{half}", seal_settings(node, half, variables)
    except ValueError as error:
        raise click.UsageError(f"--settings: {error}") from error
