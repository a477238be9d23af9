"""Health and metrics of a process, asked over its own port."""

from collections.abc import Iterator

import httpx
import pytest

from schemas.units import Ms
from tunery.platform.process import open_probes
from tunery.platform.settings import SettingsError
from tunery.runtime.health import Health
from tunery.runtime.hosts.probes import LOOPBACK, Probes
from tunery.runtime.journal import alarm
from tunery.runtime.journal.acceptance import Poison

pytestmark = pytest.mark.usefixtures("nothing_has_stopped")

WAIT_MS: Ms = 60_000


@pytest.fixture
def probes() -> Iterator[Probes]:
    server = Probes(0)
    yield server
    server.close()


def ask(probes: Probes, path: str) -> httpx.Response:
    return httpx.get(f"http://{LOOPBACK}:{probes.port}{path}", timeout=WAIT_MS / 1_000)


def test_a_process_lives_from_its_start_and_is_ready_when_its_hosts_are(probes: Probes) -> None:
    assert ask(probes, "/healthz").json() == {"status": "ok"}
    first = ask(probes, "/readyz")
    assert (first.status_code, first.json()) == (503, {"status": "starting"})
    probes.health = Health()
    assert ask(probes, "/readyz").status_code == 503, "views are rebuilt"
    probes.health.has_started = True
    assert (ask(probes, "/readyz").status_code, ask(probes, "/nothing").status_code) == (200, 404)


def test_a_host_that_does_not_run_makes_it_not_ready(probes: Probes) -> None:
    probes.health = Health()
    probes.health.has_started = True
    probes.health.mark_failing("effects", "hung")
    answer = ask(probes, "/readyz")
    assert (answer.status_code, answer.json()["hosts"]) == (503, {"effects": "hung"})
    probes.health.mark_running("effects")
    assert ask(probes, "/readyz").json() == {"status": "ready"}


def test_a_partition_that_stopped_makes_it_not_ready(probes: Probes) -> None:
    probes.health = Health()
    probes.health.has_started = True
    alarm.sound("a host", "job", Poison("job", 3, 7, "unreadable"))
    try:
        answer = ask(probes, "/readyz")
        assert (answer.status_code, answer.json()["partitions"]) == (503, {"a host": ["job/3"]})
    finally:
        alarm.silence("a host", "job", 3)
    assert ask(probes, "/readyz").status_code == 200


def test_metrics_are_in_the_format_of_prometheus(probes: Probes) -> None:
    Health().mark_running("one host")
    answer = ask(probes, "/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert 'tunery_host_running{host="one host"} 1.0' in answer.text


def test_a_port_that_is_taken_is_named_with_what_to_do(probes: Probes) -> None:
    with pytest.raises(SettingsError, match=f"TUNERY_METRICS_PORT: port {probes.port} of 127"):
        open_probes(probes.port)
    assert open_probes(None) is None


def test_it_listens_where_the_settings_say() -> None:
    everywhere = open_probes(0, "0.0.0.0")  # noqa: S104  # what a container sets
    assert everywhere is not None
    try:
        answer = httpx.get(f"http://127.0.0.2:{everywhere.port}/healthz", timeout=WAIT_MS / 1_000)
        assert answer.status_code == 200
        elsewhere = "192.0.2.1"  # of documentation: no machine has it
        with pytest.raises(SettingsError, match="TUNERY_METRICS_HOST an address of this machine"):
            open_probes(0, elsewhere)
    finally:
        everywhere.close()
