"""Checks of this machine: each names a fix, and none of them ends the others."""

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tunery.local import doctor, prometheus, s3, state
from tunery.local.doctor import Diagnosis
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir
from tunery.local.state import StackPhase, StackState, StateFile


def raises(error: Exception) -> str:
    raise error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (LocalError("no jars", "run it"), Diagnosis("kafka", "no jars", "run it")),
        (OSError("gone"), Diagnosis("kafka", "OSError: gone", "otherwise")),
        (
            subprocess.TimeoutExpired("java", 30),
            Diagnosis(
                "kafka",
                "TimeoutExpired: Command 'java' timed out after 30 seconds",
                "otherwise",
            ),
        ),
    ],
)
def test_a_failed_check_is_a_diagnosis_with_a_fix(error: Exception, expected: Diagnosis) -> None:
    assert doctor.guarded("kafka", lambda: raises(error), "otherwise") == expected
    assert not expected.is_well


def test_a_check_that_passes_needs_no_fix() -> None:
    assert doctor.guarded("kafka", lambda: "90 jars").is_well


@pytest.mark.parametrize(
    ("system", "processor", "is_well"),
    [("Linux", "x86_64", True), ("Linux", "aarch64", False), ("Darwin", "x86_64", False)],
)
def test_embedded_servers_need_linux_on_x86_64(
    system: str, processor: str, is_well: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: processor)
    assert doctor.machine() == Diagnosis("machine", f"{system} {processor}", doctor.machine().fix)
    assert doctor.machine().is_well is is_well


def test_the_first_line_of_a_programs_output_is_its_version() -> None:
    assert doctor.output([sys.executable, "-c", "print('one\\ntwo')"]) == "one"
    assert doctor.output([sys.executable, "-c", ""]) == ""
    with pytest.raises(LocalError, match=r"ended with 3: why"):
        doctor.output([sys.executable, "-c", "import sys; print('why'); sys.exit(3)"])


def test_missing_packages_for_training_are_all_named(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = {"trl", "peft"}
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in absent else SimpleNamespace()
    )
    with pytest.raises(LocalError, match="trl, peft not installed"):
        doctor.training()


def test_a_prometheus_is_named_and_none_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "program", lambda: Path("/usr/bin/prometheus"))
    assert doctor.observer() == Diagnosis("prometheus", "/usr/bin/prometheus")
    monkeypatch.setattr(prometheus, "program", lambda: raises(LocalError("none", "get it")))
    assert doctor.observer().is_well
    assert "tunery up --observe" in doctor.observer().detail


@pytest.mark.parametrize(("free", "is_well"), [(doctor.DISK_BYTES_MIN, True), (0, False)])
def test_space_is_measured_where_the_data_directory_will_be(
    free: int, is_well: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    monkeypatch.setattr(s3, "check_attributes", lambda _: None)
    disk, attributes = doctor.data_dir(DataDir(tmp_path / "not" / "yet"))
    assert (disk.name, disk.is_well, attributes.is_well) == ("disk", is_well, True)


def test_servers_of_the_users_own_are_listed_or_what_they_lack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "environ", {})
    assert doctor.own_servers() == Diagnosis("servers", "all embedded")
    monkeypatch.setattr(os, "environ", {"TUNERY_POSTGRES_DSN": "postgresql://db/x"})
    assert doctor.own_servers() == Diagnosis("servers", "postgres")
    monkeypatch.setattr(os, "environ", {"TUNERY_S3_ENDPOINT": "http://s3"})
    assert not doctor.own_servers().is_well


def test_the_last_run_is_described_by_its_state_file(tmp_path: Path) -> None:
    folders = DataDir(tmp_path)
    folders.create()
    assert "not running" in doctor.last_run(folders).detail
    file = StateFile(folders)
    file.enter(StackPhase.READY)
    assert state.read(folders).is_alive()
    assert doctor.last_run(folders) == Diagnosis("stack", f"ready on {tmp_path}")


def test_a_start_that_failed_is_described_by_its_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = StackState(phase=StackPhase.FAILED, failure="no port")
    monkeypatch.setattr(state, "read", lambda _: failed)
    diagnosis = doctor.last_run(DataDir(tmp_path))
    assert (diagnosis.detail, diagnosis.is_well) == ("could not start: no port", False)


def test_a_supervisor_that_has_not_ended_yet_does_not_hide_a_failed_start(tmp_path: Path) -> None:
    folders = DataDir(tmp_path)
    folders.create()
    StateFile(folders).enter(StackPhase.FAILED, "no port")
    assert state.read(folders).is_alive()
    diagnosis = doctor.last_run(folders)
    assert (diagnosis.detail, diagnosis.is_well) == ("could not start: no port", False)


def driver(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program into the search path that answers as NVIDIA's does."""
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo 'GPU 0: H200'; echo 'GPU 1: H200'", "2 CPUs, 2 NVIDIA devices"),
        ("echo 'GPU 0: H200'", "2 CPUs, 1 NVIDIA device"),
        ("exit 0", "2 CPUs, no NVIDIA device"),
    ],
)
def test_first_hour_low_processors_and_devices_are_counted(
    script: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    driver(tmp_path, script, monkeypatch)
    assert doctor.processors() == Diagnosis("processors", expected)


def test_first_hour_low_a_broken_driver_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver(tmp_path, "echo 'no devices were found'; exit 6", monkeypatch)
    diagnosis = doctor.processors()
    assert not diagnosis.is_well
    assert "no devices were found" in diagnosis.detail
