"""Prometheus beside a stack: where it comes from, what it scrapes, and how it is supervised."""

import hashlib
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tunery.local import prometheus
from tunery.local.errors import LocalError
from tunery.local.events import Changed, Event, Phase
from tunery.local.paths import PROMETHEUS_VERSION, DataDir
from tunery.local.supervisor import Supervisor

#: says that it is ready, and runs until it is stopped
STAND_IN = (
    "import time; print('Server is ready to receive web requests.', flush=True); time.sleep(60)"
)
CONTENT = b"a package"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the package is unpacked; nothing is there, and nothing is installed."""
    target = tmp_path / "cache" / "prometheus"
    monkeypatch.setattr(prometheus, "prometheus_dir", lambda: target)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    return target


class Apt:
    """Stands for apt-get and dpkg-deb: a package with both programs."""

    content = CONTENT
    failure: subprocess.SubprocessError | OSError | None = None

    def __init__(self) -> None:
        self.commands: list[list[str]] = []

    def run(self, command: list[str], cwd: Path, **_: Any) -> None:
        self.commands.append(list(command))
        if self.failure is not None:
            raise self.failure
        if command[0] == "apt-get":
            (cwd / "prometheus_amd64.deb").write_bytes(self.content)
            return
        programs = Path(command[-1]) / "usr" / "bin"
        programs.mkdir(parents=True)
        for name in prometheus.PROGRAMS:
            (programs / name).touch()


@pytest.fixture
def apt(monkeypatch: pytest.MonkeyPatch) -> Apt:
    apt = Apt()
    monkeypatch.setattr(subprocess, "run", apt.run)
    monkeypatch.setattr(prometheus, "PACKAGE_SHA256", hashlib.sha256(CONTENT).hexdigest())
    return apt


def test_an_installed_program_is_used(monkeypatch: pytest.MonkeyPatch, apt: Apt) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/opt/{name}")
    assert prometheus.install() == prometheus.program() == Path("/opt/prometheus")
    monkeypatch.setattr(shutil, "which", {"prometheus": "/opt/prometheus"}.get)
    assert prometheus.install() == Path("/opt/prometheus"), "a stack needs no promtool"
    assert apt.commands == []


def test_the_pinned_package_is_unpacked_once(cache: Path, apt: Apt) -> None:
    cache.mkdir(parents=True)
    (cache / "left").touch()  # by a set-up that was killed
    assert prometheus.install() == cache / "usr" / "bin" / "prometheus"
    assert apt.commands[0] == ["apt-get", "download", f"prometheus={PROMETHEUS_VERSION}"]
    assert prometheus.install() == prometheus.program()
    assert prometheus.program("promtool").is_file()
    assert len(apt.commands) == 2
    assert [path.name for path in cache.parent.iterdir()] == [cache.name]


def test_another_package_is_refused_and_not_unpacked(cache: Path, apt: Apt) -> None:
    apt.content = b"another package"
    with pytest.raises(LocalError, match=r"SHA-256 is .*, not"):
        prometheus.install()
    assert len(apt.commands) == 1
    assert list(cache.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (FileNotFoundError("no apt-get here"), "no apt-get here"),
        (subprocess.CalledProcessError(100, "apt-get", b"", b"E: no package\n"), "E: no package"),
        (subprocess.TimeoutExpired("apt-get", 120), "timed out"),
    ],
)
def test_a_package_that_cannot_be_had_is_named_with_the_fixes(
    failure: OSError | subprocess.SubprocessError, reason: str, cache: Path, apt: Apt
) -> None:
    apt.failure = failure
    with pytest.raises(LocalError, match=reason) as refused:
        prometheus.install()
    assert "apt-get install prometheus" in refused.value.fix
    assert not cache.exists()


def test_without_a_program_the_error_names_how_to_get_it(cache: Path) -> None:
    with pytest.raises(LocalError, match="not installed") as refused:
        prometheus.child(cache, 1)
    assert "python -m tunery.local.prometheus install" in refused.value.fix


def test_the_rules_are_those_of_the_repository_and_in_the_package() -> None:
    assert prometheus.RULES.parent == Path(prometheus.__file__).parent
    assert yaml.safe_load(prometheus.RULES.read_text(encoding="utf-8"))["groups"]


def test_the_configuration_names_rules_and_targets(tmp_path: Path) -> None:
    settings = yaml.safe_load(prometheus.configuration(tmp_path / "targets.json"))
    assert settings["rule_files"] == [str(prometheus.RULES)]
    (job,) = settings["scrape_configs"]
    assert job["job_name"] == "tunery", "rules ask for it"
    assert job["file_sd_configs"] == [{"files": [str(tmp_path / "targets.json")]}]


def test_targets_are_named_and_replaced_as_a_whole(tmp_path: Path) -> None:
    folder = tmp_path / "prometheus"
    prometheus.write_targets(folder, {"gateway": "127.0.0.1:9400"})
    prometheus.write_targets(folder, {"eval": "127.0.0.1:9404"})
    groups = json.loads(prometheus.targets_file(folder).read_text(encoding="utf-8"))
    assert groups == [{"targets": ["127.0.0.1:9404"], "labels": {"service": "eval"}}]
    assert [path.name for path in folder.iterdir()] == ["targets.json"]
    assert folder.stat().st_mode & 0o777 == 0o700


async def test_it_answers_this_machine_alone_and_is_supervised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "program", lambda: Path("/opt/prometheus"))
    folders = DataDir(tmp_path)
    folders.create()
    folder = folders.server("prometheus")
    child = prometheus.child(folder, 19_090)
    assert "--web.listen-address=127.0.0.1:19090" in child.argv
    assert f"--storage.tsdb.path={folder / 'data'}" in child.argv
    assert any(word.startswith("--storage.tsdb.retention.size=") for word in child.argv)
    events: list[Event] = []
    supervisor = Supervisor(folders, events.append)
    try:
        await supervisor.start([replace(child, argv=(sys.executable, "-c", STAND_IN))])
        assert (folder / "prometheus.yml").is_file()
        first = supervisor.pid("prometheus")
        supervisor.kill("prometheus")
        await supervisor.await_ready("prometheus")
        assert supervisor.pid("prometheus") not in {first, None}
    finally:
        await supervisor.drain([["prometheus"]])
    assert supervisor.pid("prometheus") is None
    ready = [each for each in events if isinstance(each, Changed) and each.phase is Phase.READY]
    assert [each.address for each in ready] == ["127.0.0.1:19090"] * 2
