"""Set-up installs what is missing, says so, and is silent when all is there."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tunery.local import console, jars, kafka, provide, s3
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that has everything; the folder of its base model."""
    model, binary = tmp_path / "model", tmp_path / "bin" / "versitygw"
    cache = tmp_path / "jars" / "startup.aot"
    for file in (model / "model.safetensors", binary, cache):
        file.parent.mkdir()
        file.write_bytes(b"")
    monkeypatch.setattr(provide, "base_model_dir", lambda: model)
    monkeypatch.setattr(provide, "versitygw_binary", lambda: binary)
    monkeypatch.setattr(provide, "cache_dir", lambda: tmp_path / "cache")
    monkeypatch.setattr(jars, "install", lambda: (tmp_path, 0))
    monkeypatch.setattr(s3, "install", lambda: pytest.fail("it was there"))
    monkeypatch.setattr(kafka, "startup_cache", lambda: cache)
    monkeypatch.setattr(console, "scripts_dir", lambda: tmp_path)
    return model


def convert_with(monkeypatch: pytest.MonkeyPatch, code: int, errors: str) -> list[list[str]]:
    """The conversion ends with a code; the commands that were run."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, code, stdout="", stderr=errors)

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def test_nothing_is_printed_when_all_is_there(
    installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    provide.main()
    assert capsys.readouterr().out == ""
    assert provide.missing() == []
    assert provide.base_model() == installed


def test_what_was_installed_is_announced(
    installed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (installed / "model.safetensors").unlink()
    (tmp_path / "bin" / "versitygw").unlink()
    monkeypatch.setattr(jars, "install", lambda: (tmp_path, 3))
    monkeypatch.setattr(s3, "install", lambda: tmp_path / "bin" / "versitygw")
    commands = convert_with(monkeypatch, 0, "")
    monkeypatch.setattr(kafka, "startup_cache", lambda: tmp_path / "missing.aot")
    monkeypatch.setattr(provide, "create", lambda: tmp_path / "written.aot")
    assert provide.missing() == [("base model", str(installed))]
    provide.main()
    printed = capsys.readouterr().out
    for text in (
        f"3 Kafka jars in {tmp_path}",
        f"Java's cache of Kafka in {tmp_path}",
        "building versitygw",
        f"base model in {installed}",
    ):
        assert f"setup: {text}" in printed
    assert commands == [[sys.executable, "-m", "tunery.ml.base", "convert", str(installed)]]


def test_a_conversion_that_fails_is_an_error_with_its_last_words(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (installed / "model.safetensors").unlink()
    convert_with(monkeypatch, 1, "x" * 2_000 + " MemoryError\n")
    with pytest.raises(LocalError, match=r"could not be converted: x{788} MemoryError\n"):
        provide.base_model()


def test_set_up_ends_with_the_problem_of_any_part(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable() -> Any:
        raise LocalError("no network", "connect it")

    assert installed.exists()
    monkeypatch.setattr(jars, "install", unreachable)
    with pytest.raises(SystemExit, match="setup: no network"):
        provide.main()


def test_set_ups_of_two_clones_build_one_after_another(
    installed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Eight at once each compiled the S3 server, for ten minutes instead of one."""
    builds: list[str] = []

    def build() -> tuple[Path, int]:
        builds.append("jars")
        return tmp_path, 0

    assert installed.exists()
    monkeypatch.setattr(jars, "install", build)
    waiting = threading.Thread(target=provide.main)
    with provide.hold_cache():
        waiting.start()
        waiting.join(0.2)
        assert (waiting.is_alive(), builds) == (True, [])
    waiting.join()
    assert builds == ["jars"]
    assert capfd.readouterr().out == "setup: waiting for the set-up of another clone\n"


def test_a_cache_that_cannot_be_written_costs_time_and_nothing_else(
    installed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse() -> Path:
        raise LocalError("no space", "free some")

    monkeypatch.setattr(kafka, "startup_cache", lambda: tmp_path / "missing.aot")
    monkeypatch.setattr(provide, "create", refuse)
    provide.main()
    assert "Kafka will start slower, without a cache of Java's: no space" in capsys.readouterr().out


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "startup-new.aot"
    monkeypatch.setattr(kafka, "startup_cache", lambda: path)
    return path


def test_a_cache_replaces_those_of_other_versions(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def record(_folders: DataDir, cache: Path) -> None:
        assert not target.exists()
        cache.write_bytes(b"classes")

    other = target.with_name("startup-old.aot")
    other.write_bytes(b"old")
    monkeypatch.setattr(provide, "_record", record)
    assert provide.create() == target
    assert target.read_bytes() == b"classes"
    assert list(target.parent.iterdir()) == [target]


def test_without_a_cache_of_java_the_old_one_stays(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def record(_folders: DataDir, _cache: Path) -> None:
        """Java ended without one."""

    other = target.with_name("startup-old.aot")
    other.write_bytes(b"old")
    monkeypatch.setattr(provide, "_record", record)
    with pytest.raises(LocalError, match="Java wrote no cache"):
        provide.create()
    assert list(target.parent.iterdir()) == [other]
