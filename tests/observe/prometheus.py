"""Prometheus and promtool: those of this machine, or of Debian's package; a server that scrapes."""

import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import httpx
import yaml

from tests.infra.variables import INFRA
from tunery.local.paths import cache_dir
from tunery.local.ports import find_free

FOLDER: Final = INFRA / "prometheus"
NAMES: Final = ("prometheus", "promtool")
DOWNLOAD_S_MAX: Final = 120
START_S_MAX: Final = 30.0


class NoPrometheus(Exception):
    """It cannot be had here; the text says why."""


class Programs(NamedTuple):
    """Paths of both programs."""

    prometheus: Path
    promtool: Path


def programs() -> Programs:
    """Those in PATH, else those of Debian's package, which is kept with the other downloads.

    Raises NoPrometheus.
    """
    if all(installed := [shutil.which(name) for name in NAMES]):
        return Programs(*(Path(str(path)) for path in installed))
    folder = cache_dir() / "tests" / "prometheus"
    unpacked = [folder / "usr" / "bin" / name for name in NAMES]
    if not all(path.is_file() for path in unpacked):
        _unpack(folder)
    return Programs(*unpacked)


def _unpack(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder) as scratch:
        try:
            _run(scratch, "apt-get", "download", "prometheus")
            (package,) = Path(scratch).glob("prometheus_*.deb")
            _run(scratch, "dpkg-deb", "-x", str(package), str(folder))
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            reason = f"no prometheus and promtool in PATH, and Debian's package: {error}"
            raise NoPrometheus(reason) from error


def _run(folder: str, *command: str) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=DOWNLOAD_S_MAX)


class Server(NamedTuple):
    """A Prometheus that runs."""

    url: str

    def ask(self, query: str) -> list[Any]:
        """The results of a query now, each with its labels and its value."""
        reply = httpx.get(f"{self.url}/api/v1/query", params={"query": query}, timeout=30)
        assert reply.is_success, f"{query}: {reply.text}"
        data = reply.json()["data"]
        return [data["result"]] if data["resultType"] == "scalar" else list(data["result"])


@contextmanager
def scraping(ports: Sequence[int], folder: Path) -> Iterator[Server]:
    """A Prometheus with our configuration that scrapes these ports of this machine each second.

    folder: for its configuration and data
    """
    settings = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))
    settings["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    settings["rule_files"] = [str(FOLDER / name) for name in settings["rule_files"]]
    (job,) = settings["scrape_configs"]
    job["static_configs"] = [{"targets": [f"127.0.0.1:{port}" for port in ports]}]
    configuration = folder / "prometheus.yml"
    configuration.write_text(yaml.safe_dump(settings), encoding="utf-8")
    address = f"127.0.0.1:{find_free(set(ports))}"
    command = [str(programs().prometheus), f"--config.file={configuration}"]
    command += [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}"]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            server = Server(f"http://{address}")
            _wait_until_ready(server.url)
            yield server
        finally:
            process.terminate()


def _wait_until_ready(url: str) -> None:
    deadline = time.monotonic() + START_S_MAX
    while True:
        try:
            if httpx.get(f"{url}/-/ready").is_success:
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < deadline, "Prometheus did not start"
        time.sleep(0.2)
