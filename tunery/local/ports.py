"""Ports on 127.0.0.1: preferred ones first, remembered in the data directory."""

import json
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
PREFERRED: Final[Mapping[str, int]] = {
    "gateway": 8700,
    "kafka": 19092,
    "kafka-controller": 19093,
    "postgres": 15432,
    "valkey": 16379,
    "s3": 19000,
}
ATTEMPTS_MAX: Final = 50
ANY: Final[Mapping[str, int]] = dict.fromkeys(PREFERRED, 0)


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def find_free(taken: set[int]) -> int:
    """A port nobody listens on and that is not in `taken`."""
    for _attempt in range(ATTEMPTS_MAX):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((HOST, 0))
            port = int(probe.getsockname()[1])
        if port not in taken:
            return port
    raise OSError(f"no free port on {HOST} after {ATTEMPTS_MAX} attempts")


def assign(
    file: Path,
    notice: Callable[[str], None],
    preferred: Mapping[str, int] = PREFERRED,
    free: Callable[[int], bool] = is_free,
) -> dict[str, int]:
    """One port per name, the same as last time where possible; says when one had to change."""
    remembered = read(file)
    ports: dict[str, int] = {}
    for name, first in preferred.items():
        wish = remembered.get(name, first)
        taken = set(ports.values())
        if wish and wish not in taken and free(wish):
            ports[name] = wish
            continue
        ports[name] = find_free(taken | set(remembered.values()))
        if wish:
            notice(f"port {wish} for {name} is taken by another program; using {ports[name]}")
    part = file.with_suffix(".part")
    part.write_text(json.dumps(ports, indent=2) + "\n", encoding="utf-8")
    part.replace(file)
    return ports


def read(file: Path) -> dict[str, int]:
    """Ports of the last start; empty when there was none."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}  # no file yet, or half-written by a machine that died: choose anew
    if not isinstance(found, dict):
        return {}
    return {str(k): v for k, v in found.items() if isinstance(v, int) and 0 < v < 65536}
