"""`tunery up --observe`: Prometheus runs beside the stack, scrapes it, and ends with it."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.e2e.stories import tunery
from tests.observe.prometheus import Server
from tests.stacks import sweep, temporary_data_dir
from tunery.local.stack import AGENT, METRICS_PORT, SERVICES

pytestmark = pytest.mark.timeout(600)

SCRAPED_S_MAX: Final = 60.0  # an interval is 15 s
RESTART_S_MAX: Final = 30.0
POLL_S: Final = 0.5


async def test_observe_a_stack_has_its_prometheus_until_it_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(METRICS_PORT, raising=False)
    sweep()
    with temporary_data_dir() as data_dir:
        words = ("up", "--detach", "--observe", "--no-agent", "--json")
        code, said = await tunery(data_dir, *words)
        assert code == 0, said
        url = str(json.loads(said)["prometheus_url"])
        try:
            await check_running(data_dir, Server(url, time.time()))
        finally:
            code, said = await tunery(data_dir, "down")
        assert code == 0, said
        with pytest.raises(httpx.ConnectError):
            Server(url, 0).ask("up")


async def check_running(data_dir: Path, server: Server) -> None:
    """All services are scraped, rules evaluated, and a Prometheus that dies is started again."""
    services = {name for name in SERVICES if name != AGENT}
    await_that(lambda: scraped(server) == services, SCRAPED_S_MAX)
    assert server.ask("tunery_host_running == 1"), "figures of ours"
    rules = server.rules()
    assert len(rules) > 20
    assert {rule["health"] for rule in rules} <= {"ok", "unknown"}, "unknown: not evaluated yet"
    assert server.url.endswith(str((await child(data_dir))["address"]))
    os.kill((await child(data_dir))["pid"], signal.SIGKILL)
    deadline = time.monotonic() + RESTART_S_MAX
    while (now := await child(data_dir))["restarts"] != 1 or now["phase"] != "ready":
        assert time.monotonic() < deadline, now
    assert server.ask("count_over_time(up[10m])"), "data of before the restart"


def scraped(server: Server) -> set[str]:
    return {str(result["metric"]["service"]) for result in server.ask("up == 1")}


def await_that(holds: Callable[[], bool], seconds_max: float) -> None:
    deadline = time.monotonic() + seconds_max
    while not holds():
        assert time.monotonic() < deadline, "it never held"
        time.sleep(POLL_S)


async def child(data_dir: Path) -> dict[str, Any]:
    """Prometheus, as `tunery status` lists it."""
    code, said = await tunery(data_dir, "status", "--json")
    assert code == 0, said
    listed: dict[str, Any] = json.loads(said)["children"]["prometheus"]
    return listed
