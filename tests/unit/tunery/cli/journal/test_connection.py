from pathlib import Path

import pytest
from click.testing import CliRunner

from tunery.cli.main import main
from tunery.local.paths import DataDir
from tunery.local.settings import log_settings
from tunery.platform.connections import kafka_settings


def test_an_external_kafka_needs_no_stack_and_keeps_its_replication(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNERY_KAFKA_REPLICATION", "3")
    settings = kafka_settings(log_settings(DataDir(tmp_path), {"TUNERY_KAFKA_BOOTSTRAP": "k:9092"}))
    assert (settings.bootstrap, settings.replication) == ("k:9092", 3)


def test_without_a_stack_the_fix_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUNERY_KAFKA_BOOTSTRAP", raising=False)
    done = CliRunner().invoke(main, ["journal", "verify", "--data-dir", str(tmp_path)])
    assert done.exit_code == 1
    assert f"there is no stack in {tmp_path}" in done.output
    assert "fix: start one with `tunery up`" in done.output


def test_a_log_that_does_not_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNERY_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    done = CliRunner().invoke(main, ["journal", "verify", "job", "--data-dir", str(tmp_path)])
    assert done.exit_code == 1
    assert "Kafka at 127.0.0.1:1" in done.output
    assert "see `tunery status`" in done.output
