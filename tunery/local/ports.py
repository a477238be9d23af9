"""Ports on 127.0.0.1: preferred ones first, remembered in the data directory."""

import json
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
LOOPBACK: Final = (HOST, "localhost", "::1")  # names of this machine in addresses
PREFERRED: Final[Mapping[str, int]] = {
    "gateway": 8700,
    "kafka": 19092,
    "kafka-controller": 19093,
    "postgres": 15432,
    "valkey": 16379,
    "s3": 19000,
}
PROMETHEUS_PREFERRED: Final = 19090
PORT_MAX: Final = 65_535
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


class PortClaims:
    """Ports that a stack has chosen, from before they are bound until it ends.

    No other stack of this machine chooses them meanwhile: a claim is a name in Linux's abstract
    namespace of sockets, which ends with its process. Other programs know nothing of it.
    """

    def __init__(self) -> None:
        self._claims: dict[int, socket.socket] = {}

    def is_free(self, port: int) -> bool:
        """True if no program uses the port and no other stack claims it; then claims it."""
        return is_free(port) and (port in self._claims or self._claim(port))

    def _claim(self, port: int) -> bool:
        if sys.platform != "linux":
            return True
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            claim.bind(f"\0tunery-port-{port}")
        except OSError:
            claim.close()
            return False
        self._claims[port] = claim
        return True

    def close(self) -> None:
        for claim in self._claims.values():
            claim.close()
        self._claims.clear()


def find_free(excluded: set[int]) -> int:
    """A free port that is not in `excluded`. Raises OSError when none is found."""
    for _attempt in range(ATTEMPTS_MAX):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((HOST, 0))
            port = int(probe.getsockname()[1])
        if port not in excluded:
            return port
    raise OSError(f"no free port on {HOST} after {ATTEMPTS_MAX} attempts")


def find_block(first: int, count: int, free: Callable[[int], bool] = is_free) -> int:
    """The first of `count` free ports in a row.

    first: first port to try; 0: anywhere. Raises OSError when there are none.
    """
    start = first or find_free(set())
    for _attempt in range(ATTEMPTS_MAX):
        if start + count > PORT_MAX + 1:
            break
        if all(free(port) for port in range(start, start + count)):
            return start
        start = start + count if first else find_free(set())
    raise OSError(f"no {count} free ports in a row on {HOST}")


def with_prometheus(preferred: Mapping[str, int]) -> Mapping[str, int]:
    """Add a port for Prometheus; 0 (any free port) if all preferred ports are 0."""
    port = PROMETHEUS_PREFERRED if any(preferred.values()) else 0
    return {**preferred, "prometheus": port}


def assign(
    file: Path,
    notice: Callable[[str], None],
    preferred: Mapping[str, int] = PREFERRED,
    free: Callable[[int], bool] = is_free,
) -> dict[str, int]:
    """Assign a port to each name: the one of the last start if it is free, else the preferred one.

    notice: gets a line when a port had to change
    """
    remembered = read(file)
    ports: dict[str, int] = {}
    for name, first in preferred.items():
        preferred_port = remembered.get(name, first)
        excluded = set(ports.values())
        if preferred_port and preferred_port not in excluded and free(preferred_port):
            ports[name] = preferred_port
            continue
        ports[name] = _find(excluded | set(remembered.values()), free)
        if preferred_port:
            notice(
                f"port {preferred_port} for {name} is used by another program; using {ports[name]}"
            )
    part = file.with_suffix(".part")
    part.write_text(json.dumps(ports, indent=2) + "\n", encoding="utf-8")
    part.replace(file)
    return ports


def _find(excluded: set[int], free: Callable[[int], bool]) -> int:
    for _attempt in range(ATTEMPTS_MAX):
        if free(port := find_free(excluded)):
            return port
    raise OSError(f"no free port on {HOST} after {ATTEMPTS_MAX} attempts")


def read(file: Path) -> dict[str, int]:
    """Ports of the last start; empty when there are none or the file cannot be read."""
    try:
        ports = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}  # no file yet, or cut off when the machine lost power
    if not isinstance(ports, dict):
        return {}
    return {str(k): v for k, v in ports.items() if isinstance(v, int) and 0 < v <= PORT_MAX}
