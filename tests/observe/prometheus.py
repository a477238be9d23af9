"""A Prometheus for tests: the product's own, with short intervals, and questions to it."""

import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import isnan
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx

from tests.infra.variables import INFRA
from tests.observe.pictures import Series
from tunery.local import prometheus
from tunery.local.ports import find_free

FOLDER: Final = INFRA / "prometheus"
INTERVAL: Final = "1s"  # of scrapes and evaluations
START_S_MAX: Final = 30.0
POLL_S: Final = 0.5


class Server(NamedTuple):
    """A Prometheus that runs. since: Unix time of its start."""

    url: str
    since: float

    def ask(self, query: str) -> list[Any]:
        """The results of a query now, each with its labels and its value."""
        return list(self._data("query", query=query)["result"])

    def series(self, query: str) -> list[Series]:
        """Each series of a query since the start, as a panel shows it: without NaN."""
        span = {"start": str(self.since), "end": str(time.time()), "step": INTERVAL}
        curves = []
        for result in self._data("query_range", query=query, **span)["result"]:
            points = tuple((float(at), float(value)) for at, value in result["values"])
            if numbers := tuple(point for point in points if not isnan(point[1])):
                curves.append(Series(result["metric"], numbers))
        return curves

    def firing(self) -> set[str]:
        """The names of the alerts that fire now."""
        alerts = self.ask('ALERTS{alertstate="firing"}')
        return {str(alert["metric"]["alertname"]) for alert in alerts}

    def rules(self) -> list[Any]:
        """The rules of all groups, each with its health."""
        return [rule for group in self._data("rules")["groups"] for rule in group["rules"]]

    def await_alert(self, name: str, seconds_max: float) -> float:
        """Wait until an alert fires; returns for how many seconds. Fails after `seconds_max`."""
        began = time.monotonic()
        while name not in (firing := self.firing()):
            elapsed_s = time.monotonic() - began
            assert elapsed_s < seconds_max, f"{name} did not fire in {seconds_max} s, but {firing}"
            time.sleep(POLL_S)
        return time.monotonic() - began

    def _data(self, kind: str, **parameters: str) -> Any:
        reply = httpx.get(f"{self.url}/api/v1/{kind}", params=parameters, timeout=30)
        assert reply.is_success, f"{parameters}: {reply.text}"
        return reply.json()["data"]


@contextmanager
def scraping(
    addresses: Mapping[str, str], folder: Path, rules: Path = prometheus.RULES
) -> Iterator[Server]:
    """A Prometheus as `tunery up --observe` starts it, which scrapes each second.

    addresses: of metrics, by the name of the process. folder: for its configuration and data
    """
    prometheus.write_targets(folder, addresses)
    settings = folder / "prometheus.yml"
    targets = prometheus.targets_file(folder)
    settings.write_text(prometheus.configuration(targets, rules, INTERVAL), encoding="utf-8")
    port = find_free(set())
    command = prometheus.command(prometheus.program(), settings, folder / "data", port)
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            server = Server(f"http://127.0.0.1:{port}", time.time())
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
