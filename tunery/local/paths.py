"""Where things lie on this machine: the user's cache folder and one data directory per stack."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

KAFKA_VERSION: Final = "4.3.1"
VERSITYGW_VERSION: Final = "v1.8.0"
PROMETHEUS_VERSION: Final = "2.42.0+ds-5+deb12u1"  # of Debian's package
BASE_MODEL_ID: Final = "smollm2-135m-instruct"


def cache_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Downloads and builds that can be made again: `$TUNERY_CACHE_DIR`, else XDG's cache folder."""
    env = os.environ if environ is None else environ
    if own := env.get("TUNERY_CACHE_DIR"):
        return Path(own).expanduser().absolute()
    xdg = env.get("XDG_CACHE_HOME")
    return (Path(xdg) if xdg else Path.home() / ".cache") / "tunery"


def kafka_jars_dir() -> Path:
    return cache_dir() / f"kafka-{KAFKA_VERSION}"


def versitygw_binary() -> Path:
    return cache_dir() / f"versitygw-{VERSITYGW_VERSION}" / "versitygw"


def prometheus_dir() -> Path:
    """Return the folder into which Debian's Prometheus package is unpacked, by version."""
    return cache_dir() / f"prometheus-{PROMETHEUS_VERSION}"


def base_model_dir() -> Path:
    return cache_dir() / "bases" / BASE_MODEL_ID


def default_data_dir(environ: Mapping[str, str] | None = None) -> Path:
    """`$TUNERY_DATA_DIR`, else `tunery` in XDG's data folder (`~/.local/share`)."""
    env = os.environ if environ is None else environ
    if own := env.get("TUNERY_DATA_DIR"):
        return Path(own).expanduser().absolute()
    xdg = env.get("XDG_DATA_HOME")
    return (Path(xdg) if xdg else Path.home() / ".local" / "share") / "tunery"


@dataclass(frozen=True)
class DataDir:
    """The one directory a stack writes to. What is in it is for its owner alone.

    Under root the directory itself may be passed through: PostgreSQL runs as another user there.
    """

    root: Path

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def run(self) -> Path:
        """Process records, the lock and the state file of the supervisor."""
        return self.root / "run"

    @property
    def keystore(self) -> Path:
        return self.root / "keystore"

    @property
    def roots(self) -> Path:
        """Root keys, which wrap those of the key store."""
        return self.root / "roots"

    @property
    def signing(self) -> Path:
        """The key that signs published models, and its public part."""
        return self.root / "signing"

    @property
    def secrets(self) -> Path:
        return self.root / "secrets.json"

    @property
    def ports(self) -> Path:
        return self.root / "ports.json"

    def server(self, name: str) -> Path:
        return self.root / name

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def create(self) -> None:
        """Make the folders, with their modes."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o711 if os.geteuid() == 0 else 0o700)
        own = (
            self.logs,
            self.run,
            self.keystore,
            self.roots,
            self.signing,
            *map(self.server, ("kafka", "valkey", "s3")),
        )
        for folder in own:
            folder.mkdir(exist_ok=True)
            folder.chmod(0o700)
