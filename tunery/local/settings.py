"""Addresses of a stack, the environment of its services, and servers that the user replaces."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from schemas.access import KEEPS_ROWS, opens_keys
from schemas.streams import service_of
from schemas.topics import SERVICES
from tunery.local import console, kafka, postgres, secrets
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir
from tunery.local.ports import HOST, PREFERRED
from tunery.local.ports import read as read_ports
from tunery.local.secrets import Secrets
from tunery.platform.bus.broker_settings import EMBEDDED_SESSION_MS, SESSION_VARIABLE
from tunery.platform.bus.grants import OPERATOR
from tunery.platform.kafka_login import PREFIX, KafkaLogin
from tunery.platform.settings import LogSettings, explain
from tunery.runtime.bus.signing import write_keys

BUCKET: Final = "tunery"
TENANT: Final = "local"
#: server → the variable that replaces it when it is set before `tunery up`
REPLACED_BY: Final = {
    "kafka": "TUNERY_KAFKA_BOOTSTRAP",
    "postgres": "TUNERY_POSTGRES_DSN",
    "s3": "TUNERY_S3_ENDPOINT",
    "valkey": "TUNERY_VALKEY_URL",
}
#: how the user's own Kafka is asked; the embedded one has an account for each process
KAFKA_LOGIN: Final = tuple(f"{PREFIX}{name.upper()}" for name in KafkaLogin.model_fields)
S3_NEEDS: Final = ("TUNERY_S3_ACCESS_KEY", "TUNERY_S3_SECRET_KEY", "TUNERY_S3_BUCKET")
#: hubs, trackers and telemetry of libraries are switched off in every child process
OFFLINE: Final = {
    "DO_NOT_TRACK": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "WANDB_MODE": "disabled",
}


@dataclass(frozen=True)
class Settings:
    """Addresses and credentials of a stack, the operator's."""

    kafka_bootstrap: str
    postgres_dsn: str
    s3_endpoint: str
    s3_access_key: str
    s3_secret_key: str
    s3_bucket: str
    valkey_url: str
    gateway_port: int
    admin_key: str
    admin_key_sha256: str
    folders: DataDir
    keys: Secrets = field(repr=False)
    own_kafka: bool = False
    # port of the embedded PostgreSQL; None where the user's own is used
    postgres_port: int | None = None
    own_s3: bool = False
    log_level: str = "INFO"
    # timeout of owners in their groups; the embedded Kafka takes a shorter one
    session_timeout_ms: int | None = None

    @property
    def api_url(self) -> str:
        return f"http://{HOST}:{self.gateway_port}"

    def kafka_login(self, principal: str = OPERATOR) -> dict[str, Any]:
        """Settings (`KafkaLogin`) of a principal; empty where the user's own Kafka is used."""
        return {} if self.own_kafka else kafka.login_settings(principal, self.keys)

    def environment(self, principal: str = OPERATOR) -> dict[str, str]:
        """Variables that a process gets in addition to our environment.

        principal: name under which it authenticates to the embedded Kafka, PostgreSQL and S3 and
          sends commands; it gets only its own password and keys.
        """
        login = self.kafka_login(principal)
        session = self.session_timeout_ms
        return {
            **OFFLINE,
            **({} if session is None else {SESSION_VARIABLE: str(session)}),
            **{f"{PREFIX}{name.upper()}": value for name, value in login.items()},
            **self._command_keys(principal),
            **self._database(principal),
            **self._keystore(principal),
            **self._objects(principal),
            "OMP_WAIT_POLICY": "PASSIVE",  # spinning threads cost four times the time here
            "PYTHONUNBUFFERED": "1",
            "TUNERY_ADMIN_KEY_SHA256": self.admin_key_sha256,
            "TUNERY_DATA_DIR": str(self.folders.root),
            "TUNERY_GATEWAY_CONSOLE_DIR": str(console.scripts_dir()),
            "TUNERY_GATEWAY_HOST": HOST,
            "TUNERY_GATEWAY_PORT": str(self.gateway_port),
            "TUNERY_KAFKA_BOOTSTRAP": self.kafka_bootstrap,
            "TUNERY_LOG_LEVEL": self.log_level,
            "TUNERY_NODE_SERVE_MODULE": "services.engine.replica",
            "TUNERY_S3_BUCKET": self.s3_bucket,
            "TUNERY_S3_ENDPOINT": self.s3_endpoint,
            "TUNERY_VALKEY_URL": self.valkey_url,
        }

    def _database(self, principal: str) -> dict[str, str]:
        """The variable with which a principal reaches its schema; none where it keeps no rows."""
        if principal == OPERATOR:
            return {"TUNERY_POSTGRES_DSN": self.postgres_dsn}
        if principal not in KEEPS_ROWS:
            return {}
        if self.postgres_port is None:
            return {"TUNERY_POSTGRES_DSN": self.postgres_dsn}
        return {"TUNERY_POSTGRES_DSN": postgres.dsn(self.postgres_port, self.keys, principal)}

    def _objects(self, principal: str) -> dict[str, str]:
        """The variables with which a principal reaches object storage, as itself alone."""
        access, secret = self.s3_access_key, self.s3_secret_key
        if not self.own_s3 and principal != OPERATOR:
            access, secret = principal, self.keys.s3_password(principal)
        return {"TUNERY_S3_ACCESS_KEY": access, "TUNERY_S3_SECRET_KEY": secret}

    def _keystore(self, principal: str) -> dict[str, str]:
        """Variables that name the key store; none where no text of tenants is opened."""
        if not opens_keys(service_of(principal)):
            return {}
        return {
            "TUNERY_KEYSTORE_DIR": str(self.folders.keystore),
            "TUNERY_ROOTS_DIR": str(self.folders.roots),
        }

    def _command_keys(self, principal: str) -> dict[str, str]:
        """The variable with which a principal proves its commands; none where it sends none."""
        if principal != OPERATOR and service_of(principal) not in SERVICES:
            return {}
        try:
            keys = self.keys.sender_keys("" if principal == OPERATOR else principal)
        except ValueError as error:
            raise LocalError(str(error), "change TUNERY_NODE_ID") from None
        return {"TUNERY_COMMAND_KEYS": write_keys(keys)}


def of_stack(folders: DataDir, environ: Mapping[str, str]) -> Settings:
    """Settings of a stack that was started before. Raises LocalError when there is none."""
    ports = read_ports(folders.ports)
    if not folders.secrets.is_file() or not PREFERRED.keys() <= ports.keys():
        raise LocalError(
            f"there is no stack in {folders.root}",
            "start one with `tunery up`, name its folder with --data-dir, or set "
            f"{' and '.join(sorted(REPLACED_BY[name] for name in ('kafka', 'postgres')))}",
        )
    return build(folders, ports, secrets.load(folders.secrets), environ)


def key_folders(folders: DataDir, environ: Mapping[str, str]) -> tuple[Path, Path]:
    """The folders of data keys and of root keys: $TUNERY_KEYSTORE_DIR and $TUNERY_ROOTS_DIR, else
    those of the data directory."""
    keys = Path(environ.get("TUNERY_KEYSTORE_DIR") or folders.keystore)
    return keys, Path(environ.get("TUNERY_ROOTS_DIR") or keys.parent / "roots")


def log_settings(folders: DataDir, environ: Mapping[str, str]) -> LogSettings:
    """How an operator reaches $TUNERY_KAFKA_BOOTSTRAP, else the Kafka of the stack.

    Raises LocalError when there is no stack, or settings of Kafka are wrong.
    """
    login: dict[str, Any] = {}
    if not (bootstrap := environ.get("TUNERY_KAFKA_BOOTSTRAP")):
        stack = of_stack(folders, environ)
        bootstrap, login = stack.kafka_bootstrap, stack.kafka_login()
    try:
        return LogSettings(kafka_bootstrap=bootstrap, **login)
    except ValidationError as error:
        raise LocalError("\n".join(explain(error, PREFIX)), "correct the environment") from None


def replaced(environ: Mapping[str, str]) -> set[str]:
    """Servers that the user replaced. Raises LocalError for an S3 without its keys."""
    servers = {server for server, variable in REPLACED_BY.items() if environ.get(variable)}
    if "s3" in servers and (absent := [name for name in S3_NEEDS if not environ.get(name)]):
        raise LocalError(
            f"TUNERY_S3_ENDPOINT is set, but {', '.join(absent)} is not",
            "set them too, or unset TUNERY_S3_ENDPOINT to use the embedded S3",
        )
    if "kafka" not in servers and (unused := [name for name in KAFKA_LOGIN if environ.get(name)]):
        raise LocalError(
            f"{', '.join(unused)} is set, but TUNERY_KAFKA_BOOTSTRAP is not",
            "set it too, or unset the others to use the embedded Kafka",
        )
    return servers


def build(
    folders: DataDir, ports: Mapping[str, int], secrets: Secrets, environ: Mapping[str, str]
) -> Settings:
    """Settings of a stack; a variable that the user set replaces the embedded server."""
    absent = replaced(environ)
    own_kafka, own_s3 = "kafka" in absent, "s3" in absent

    def s3(variable: str, embedded: str) -> str:
        return environ[variable] if own_s3 else embedded

    own_session = own_kafka or environ.get(SESSION_VARIABLE)
    return Settings(
        kafka_bootstrap=environ.get("TUNERY_KAFKA_BOOTSTRAP") or f"{HOST}:{ports['kafka']}",
        postgres_dsn=environ.get("TUNERY_POSTGRES_DSN") or postgres.dsn(ports["postgres"], secrets),
        s3_endpoint=s3("TUNERY_S3_ENDPOINT", f"http://{HOST}:{ports['s3']}"),
        s3_access_key=s3("TUNERY_S3_ACCESS_KEY", secrets.s3_access_key),
        s3_secret_key=s3("TUNERY_S3_SECRET_KEY", secrets.s3_secret_key),
        s3_bucket=s3("TUNERY_S3_BUCKET", BUCKET),
        valkey_url=environ.get("TUNERY_VALKEY_URL")
        or f"redis://:{secrets.valkey_password}@{HOST}:{ports['valkey']}/0",
        gateway_port=ports["gateway"],
        keys=secrets,
        own_s3=own_s3,
        own_kafka=own_kafka,
        postgres_port=None if environ.get("TUNERY_POSTGRES_DSN") else ports["postgres"],
        admin_key=secrets.admin_key,
        admin_key_sha256=secrets.admin_key_sha256,
        folders=folders,
        log_level=environ.get("TUNERY_LOG_LEVEL") or "INFO",
        session_timeout_ms=None if own_session else EMBEDDED_SESSION_MS,
    )
