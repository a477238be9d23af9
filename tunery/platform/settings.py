"""Addresses and credentials of a process's servers, read once from the environment, at start."""

from ipaddress import IPv4Address
from pathlib import Path
from typing import Final, Literal, Self, TypeVar
from urllib.parse import unquote, urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings

from schemas.units import Ms
from tunery.confinement.confined import ConfineMode
from tunery.platform.bus.broker_settings import SESSION_MS, Driver
from tunery.platform.kafka_login import KafkaLogin
from tunery.runtime.telemetry.logs import hide

T = TypeVar("T", bound=BaseSettings)
WORD_CHARACTERS_MAX: Final = 16  # longer texts of letters may be random secrets
S3_REGION: Final = "us-east-1"


class SettingsError(Exception):
    """A setting is missing or wrong; the message names the variable and what to do."""


class LogSettings(KafkaLogin):
    """Settings of the connection to Kafka."""

    kafka_bootstrap: str = Field(min_length=1)
    # the client library of services; "confluent" needs the extra `confluent`
    kafka_driver: Driver = "aiokafka"
    # replicas of new topics; None: three where there are three brokers, otherwise one
    kafka_replication: int | None = Field(default=None, ge=1, le=7)
    # silence after which another process takes over the partitions of this one
    session_timeout_ms: Ms = Field(default=SESSION_MS, ge=1_000, le=60_000)


class RuntimeSettings(LogSettings):
    """Settings of every service. Secrets are never shown in `repr` and logs."""

    # DSN of the service's own role; services that keep no rows need none
    postgres_dsn: str | None = Field(default=None, min_length=1, repr=False)
    s3_endpoint: str = Field(min_length=1)
    s3_access_key: str = Field(min_length=1, repr=False)
    s3_secret_key: str = Field(min_length=1, repr=False)
    s3_bucket: str = Field(default="tunery", min_length=3)
    s3_region: str = S3_REGION
    valkey_url: str | None = Field(default=None, repr=False)
    data_dir: Path
    keystore_dir: Path | None = None
    roots_dir: Path | None = None
    signing_dir: Path | None = None
    # whether new files of tenants are encrypted in object storage
    blob_encryption: Literal["on", "off"] = "on"
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    postgres_connections_max: int = Field(default=8, ge=4, le=200)
    confine: ConfineMode = "require"  # of processes that read what tenants upload
    metrics_port: int | None = Field(default=None, ge=1, le=65_535)
    # address where `metrics_port` listens; 0.0.0.0 in a container, behind a firewall
    metrics_host: IPv4Address = IPv4Address("127.0.0.1")
    # `SenderKeys`, as `tunery kafka keys` prints them; "off": commands are neither signed nor
    # checked
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
        """Folder of root keys, by default `roots` next to the keys; None where there is none."""
        beside = self.keys.parent / "roots"
        return self.roots_dir or (beside if beside.is_dir() else None)

    @property
    def signing(self) -> Path:
        """Folder of the key that signs published models."""
        return self.signing_dir or self.data_dir / "signing"

    @model_validator(mode="after")
    def _refuse_words(self) -> Self:
        """Refuse plain words as secrets: they are easy to guess, and logs would hide that word."""
        for name, secret in self._secrets_by_name().items():
            if is_word(secret):
                raise ValueError(
                    f"{name} is a plain word; use a random text, such as `openssl rand -hex 24` "
                    "prints"
                )
        return self

    def secrets(self) -> tuple[str, ...]:
        """Return texts that must never reach a log. Account names are not among them."""
        return tuple(self._secrets_by_name().values())

    def _secrets_by_name(self) -> dict[str, str]:
        names = ("s3_secret_key", "command_keys", "kafka_password", "kafka_key_password")
        named = {f"TUNERY_{name.upper()}": getattr(self, name) for name in names}
        for name in ("postgres_dsn", "valkey_url"):
            where = f"the password in TUNERY_{name.upper()}"
            named[where] = password_of(getattr(self, name) or "")
        return {name: secret for name, secret in named.items() if secret not in ("", None, "off")}


def read_files(folder: Path, suffix: str) -> dict[str, bytes]:
    """Contents of the files of a folder by name. Raises SettingsError when one cannot be read."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.name.endswith(suffix))
        return {path.name: path.read_bytes() for path in paths}
    except OSError as error:
        raise SettingsError(f"{folder} cannot be read: {error.strerror}") from error


def is_word(secret: str) -> bool:
    """Return whether a secret is a short plain word, which may occur in log lines by chance."""
    return secret.isalpha() and len(secret) < WORD_CHARACTERS_MAX


def password_of(url: str) -> str:
    """Return the password in a URL; empty: it has none."""
    return unquote(urlsplit(url).password or "")


def hide_secret(secret: str) -> None:
    """Keep a secret, or the password in a URL, out of the logs of this process."""
    text = password_of(secret) if "://" in secret else secret
    hide(() if is_word(text) else (text,))


def load(settings: type[T]) -> T:
    """Build settings from the environment; logs show no secret of them. Raises SettingsError."""
    try:
        loaded = settings()
        for name in settings.model_fields:
            if isinstance(value := getattr(loaded, name), SecretStr):
                hide_secret(value.get_secret_value())
        return loaded
    except ValidationError as error:
        prefix = settings.model_config.get("env_prefix", "")
        raise SettingsError("\n".join(explain(error, prefix))) from None


def explain(error: ValidationError, prefix: str) -> list[str]:
    """Describe each wrong setting in a line: the variable, what is wrong, what to do."""
    lines = []
    for problem in error.errors(include_url=False, include_input=False):
        variable = prefix + "_".join(str(part) for part in problem["loc"]).upper()
        if not problem["loc"]:  # a validator of several settings, whose message names them
            lines.append(problem["msg"].removeprefix("Value error, "))
        elif problem["type"] == "missing":
            lines.append(f"{variable} is not set; set it, or start the service with `tunery up`")
        else:
            lines.append(f"{variable}: {problem['msg']}; correct it or unset it")
    return lines
