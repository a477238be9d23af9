"""The units of systemd: they are well-formed and hardened, and their command lines start."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import httpx
import pytest

from services.trainer.settings import STOP_MS_MAX
from tests.infra.variables import CONTROL_PLANE, INFRA, NODE, ROOT, environment, load_as, unknown_in
from tunery.local.ports import find_free
from tunery.local.settings import OFFLINE
from tunery.local.stack import AGENT, AGENT_STOP_MS_MAX, EXPORTER, service_specs
from tunery.platform.process import EXIT_BAD_SETTINGS, LEAVE_MS_MAX
from tunery.platform.settings import SettingsError
from tunery.runtime.bus.signing import read_keys

FOLDER: Final = INFRA / "systemd"
TEMPLATE: Final = FOLDER / "tunery@.service"
AGENT_UNIT: Final = FOLDER / "tunery-agent.service"
TARGET: Final = FOLDER / "tunery.target"
COMMON: Final = FOLDER / "environment" / "common.env"
PYTHON: Final = "/opt/tunery/bin/python"
EXPOSURE: Final = re.compile(r"Overall exposure level for \S+: ([\d.]+)")
START_S_MAX: Final = 60


def values(unit: Path, key: str) -> list[str]:
    lines = unit.read_text(encoding="utf-8").splitlines()
    return [line.partition("=")[2] for line in lines if line.startswith(f"{key}=")]


def argv_of(unit: Path, instance: str = "") -> list[str]:
    """The command line of a unit, with our Python in the place of the installed one."""
    (line,) = values(unit, "ExecStart")
    return [
        sys.executable if word == PYTHON else word.replace("%i", instance) for word in line.split()
    ]


# --- what the units say ------------------------------------------------------------------------


def test_the_target_starts_the_control_plane_without_the_exporter() -> None:
    started = [name for line in values(TARGET, "Wants") for name in line.split()]
    wanted = [f"tunery@{name}.service" for name in CONTROL_PLANE if name != EXPORTER]
    assert sorted(started) == sorted(wanted)
    for service in (*CONTROL_PLANE, AGENT):
        assert find_spec(f"services.{service}.__main__") is not None


def test_units_wait_as_long_as_processes_need_to_stop() -> None:
    (service,) = service_specs(["scheduler"])
    assert values(TEMPLATE, "TimeoutStopSec") == [str(service.stop_ms_max // 1_000)]
    assert values(AGENT_UNIT, "TimeoutStopSec") == [str(AGENT_STOP_MS_MAX // 1_000)]
    assert STOP_MS_MAX + LEAVE_MS_MAX < AGENT_STOP_MS_MAX
    assert values(AGENT_UNIT, "KillMode") == ["mixed"], "its trainings write a checkpoint first"
    for unit in (TEMPLATE, AGENT_UNIT):
        assert values(unit, "RestartPreventExitStatus") == [str(EXIT_BAD_SETTINGS)]


def test_units_name_files_with_settings_and_have_none_of_their_own() -> None:
    folder = "/etc/tunery"
    assert values(TEMPLATE, "EnvironmentFile") == [f"{folder}/common.env", f"{folder}/%i.env"]
    assert values(AGENT_UNIT, "EnvironmentFile") == [f"{folder}/common.env", f"{folder}/agent.env"]
    assert values(TEMPLATE, "Environment") == values(AGENT_UNIT, "Environment") == []
    data = environment(COMMON.read_text(encoding="utf-8"))["TUNERY_DATA_DIR"]
    for unit in (TEMPLATE, AGENT_UNIT):
        assert [f"/var/lib/{name}" for name in values(unit, "StateDirectory")] == [data]


def test_systemd_finds_nothing_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problems, exposures = inspect_units(tmp_path)
    if not exposures:
        with capsys.disabled():
            print("\nsystemd-analyze is not on this machine: units were not verified")
    assert problems == ""
    assert all(exposure < 3 for exposure in exposures), "of 10: how little is walled off"


def test_a_key_that_systemd_does_not_know_is_noticed(tmp_path: Path) -> None:
    problems, exposures = inspect_units(tmp_path, ("ProtectHome=", "ProtectHomes="))
    assert "Unknown key 'ProtectHomes'" in problems or not exposures


def inspect_units(folder: Path, change: tuple[str, str] = ("", "")) -> tuple[str, list[float]]:
    """What `systemd-analyze` says against the units, and how exposed it calls their processes.

    Both are empty where there is no such program. change: a text of the units that is replaced.
    """
    program = shutil.which("systemd-analyze")
    if program is None:
        return "", []
    units = {"tunery@gateway.service": TEMPLATE, AGENT_UNIT.name: AGENT_UNIT, TARGET.name: TARGET}
    for name, unit in units.items():
        text = unit.read_text(encoding="utf-8").replace(PYTHON, sys.executable).replace(*change)
        (folder / name).write_text(text, encoding="utf-8")

    def ask(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [program, *words], cwd=folder, capture_output=True, text=True, check=False
        )

    verified = ask("verify", *(f"./{name}" for name in units))
    exposed = [ask("security", "--offline=yes", f"./{name}").stdout for name in list(units)[:2]]
    levels = [float(level) for text in exposed for level in EXPOSURE.findall(text)]
    return verified.stdout + verified.stderr, levels


# --- their environment -------------------------------------------------------------------------


def test_the_common_environment_has_variables_that_exist_and_keeps_libraries_silent() -> None:
    text = COMMON.read_text(encoding="utf-8")
    assert unknown_in(text) == set()
    assert unknown_in("TUNERY_S3_BUKET=x") == {"TUNERY_S3_BUKET"}
    assert OFFLINE.items() <= environment(text).items()


def test_each_process_finds_what_it_needs_in_its_two_files(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = environment(COMMON.read_text(encoding="utf-8"))
    for name, file in {**{name: name for name in CONTROL_PLANE}, AGENT: f"node.{NODE}"}.items():
        own = environment((written / f"{file}.env").read_text(encoding="utf-8"))
        assert unknown_in("\n".join(own)) == set()
        accounts = {
            f"TUNERY_{variable}": "of this account"
            for variable in ("KAFKA_PASSWORD", "S3_ACCESS_KEY", "S3_SECRET_KEY")
        }
        for variable in accounts:
            others = {name: value for name, value in accounts.items() if name != variable}
            with pytest.raises(SettingsError, match=variable):
                load_as(name, {**common, **own, **others}, monkeypatch)
        settings = load_as(name, {**common, **own, **accounts}, monkeypatch)
        assert read_keys(settings.command_keys or "").sender == settings.kafka_username == file


# --- their command lines -----------------------------------------------------------------------


def test_a_service_without_settings_says_which_it_lacks_and_ends_with_2() -> None:
    bare = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        argv_of(TEMPLATE, "notifier"),
        cwd=ROOT,
        env=bare,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == EXIT_BAD_SETTINGS
    assert "TUNERY_KAFKA_BOOTSTRAP is not set" in done.stderr


@pytest.mark.parametrize("unit", [TEMPLATE, AGENT_UNIT], ids=["service", "agent"])
def test_a_unit_lives_with_its_files_and_waits_for_servers(
    unit: Path, written: Path, tmp_path: Path
) -> None:
    own = written / (f"node.{NODE}.env" if unit == AGENT_UNIT else "scheduler.env")
    port = find_free(set())
    settings = {
        **environment(COMMON.read_text(encoding="utf-8")),
        **environment(own.read_text(encoding="utf-8")),
        **nowhere(tmp_path),
        "TUNERY_METRICS_PORT": str(port),
    }
    process = subprocess.Popen(
        argv_of(unit, "scheduler"),
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        answer = until_alive(process, port)
        assert answer.json() == {"status": "starting"}
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=START_S_MAX)
        assert (process.returncode, "process.starting" in output) == (0, True), output
    finally:
        process.kill()
        process.wait()


def nowhere(folder: Path) -> Mapping[str, str]:
    """Servers that are not there, on this machine, and a folder of this test."""
    return {
        "TUNERY_KAFKA_PASSWORD": "of this account",
        "TUNERY_KAFKA_BOOTSTRAP": "127.0.0.1:1",
        "TUNERY_POSTGRES_DSN": "postgresql://127.0.0.1:1/tunery",
        "TUNERY_S3_ENDPOINT": "http://127.0.0.1:1",
        "TUNERY_S3_ACCESS_KEY": "of this account",
        "TUNERY_S3_SECRET_KEY": "of this account",
        "TUNERY_DATA_DIR": str(folder),
        "TUNERY_KEYSTORE_DIR": str(folder / "keystore"),
    }


def until_alive(process: "subprocess.Popen[str]", port: int) -> httpx.Response:
    """First response of `/readyz`. Fails with the output of the process if that ends before."""
    for _try in attempts():
        if process.poll() is not None:
            raise AssertionError(process.stdout.read() if process.stdout else "it ended")
        try:
            return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=START_S_MAX)
        except httpx.ConnectError:
            continue
    raise AssertionError("it listens on no port")


def attempts() -> Iterator[int]:
    for number in range(10 * START_S_MAX):
        yield number
        time.sleep(0.1)
