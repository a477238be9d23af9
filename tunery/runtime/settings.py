"""Where a process finds its servers. Read from the environment once, at the start."""

from ipaddress import IPv4Address
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings

from schemas.units import Ms
from tunery.confinement.confined import ConfineMode
from tunery.runtime.kafka_login import KafkaLogin

T = TypeVar("T", bound=BaseSettings)


class SettingsError(Exception):
    """A setting is missing or wrong; the message names the variable and what to do."""


class LogSettings(KafkaLogin):
    """Settings that are needed to use the log."""

    kafka_bootstrap: str = Field(min_length=1)
    kafka_replication: int = Field(default=1, ge=1, le=7)
    session_timeout_ms: Ms = Field(default=3_000, ge=1_000, le=60_000)

    @property
    def flush_each(self) -> bool:
        """One broker: records are fsynced as they come, so that PostgreSQL never outlives them."""
        return self.kafka_replication == 1


class RuntimeSettings(LogSettings):
    """Settings that every service has. Secrets are never shown in `repr` and logs.

    metrics_host: where `metrics_port` listens; 0.0.0.0 in a container, behind a firewall.
    postgres_dsn: of the service's own role; services that keep no rows need none.
    blob_encryption: whether new files of tenants are encrypted in object storage.
    command_keys: of `SenderKeys`, as `tunery kafka keys` prints them; "off": commands are neither
      signed nor checked.
    """

    postgres_dsn: str | None = Field(default=None, min_length=1, repr=False)
    s3_endpoint: str = Field(min_length=1)
    s3_access_key: str = Field(min_length=1, repr=False)
    s3_secret_key: str = Field(min_length=1, repr=False)
    s3_bucket: str = Field(default="tunery", min_length=3)
    s3_region: str = "us-east-1"
    valkey_url: str | None = Field(default=None, repr=False)
    data_dir: Path
    keystore_dir: Path | None = None
    roots_dir: Path | None = None
    signing_dir: Path | None = None
    blob_encryption: Literal["on", "off"] = "on"
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    postgres_connections_max: int = Field(default=8, ge=4, le=200)
    confine: ConfineMode = "require"  # of processes that read what tenants upload
    metrics_port: int | None = Field(default=None, ge=1, le=65_535)
    metrics_host: IPv4Address = IPv4Address("127.0.0.1")
    command_keys: str | None = Field(default=None, repr=False)

    @field_validator("log_level", mode="before")
    @classmethod
    def _upper(cls, value: object) -> object:
        return value.upper() if isinstance(value, str) else value

    @property
    def keys(self) -> Path:
        """Folder of the tenants' data keys."""
        return self.keystore_dir or self.data_dir / "keystore"

    @property
    def roots(self) -> Path | None:
        """Folder of root keys, by default `roots` beside the keys; None where there is none."""
        beside = self.keys.parent / "roots"
        return self.roots_dir or (beside if beside.is_dir() else None)

    @property
    def signing(self) -> Path:
        """Folder of the key that signs published models."""
        return self.signing_dir or self.data_dir / "signing"

    def secrets(self) -> tuple[str, ...]:
        """Texts that must never reach a log."""
        own = (self.postgres_dsn, self.s3_access_key, self.s3_secret_key, self.valkey_url)
        return (*filter(None, (*own, self.command_keys)), *super().secrets())


def read_files(folder: Path, suffix: str) -> dict[str, bytes]:
    """Contents of the files of a folder by name. Raises SettingsError when one cannot be read."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.name.endswith(suffix))
        return {path.name: path.read_bytes() for path in paths}
    except OSError as error:
        raise SettingsError(f"{folder} cannot be read: {error.strerror}") from error


def load(settings: type[T]) -> T:
    """Build settings from the environment. Raises SettingsError."""
    try:
        return settings()
    except ValidationError as error:
        prefix = settings.model_config.get("env_prefix", "")
        raise SettingsError("\n".join(explain(error, prefix))) from None


def explain(error: ValidationError, prefix: str) -> list[str]:
    """One line for each wrong setting: the variable, what is wrong with it, what to do."""
    lines = []
    for problem in error.errors(include_url=False, include_input=False):
        variable = prefix + "_".join(str(part) for part in problem["loc"]).upper()
        if not problem["loc"]:  # of settings that do not fit together; it names them itself
            lines.append(problem["msg"].removeprefix("Value error, "))
        elif problem["type"] == "missing":
            lines.append(f"{variable} is not set; set it, or start the service with `tunery up`")
        else:
            lines.append(f"{variable}: {problem['msg']}; correct it or unset it")
    return lines
