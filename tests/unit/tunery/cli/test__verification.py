"""Comparisons of two commands, and their report."""

from pathlib import Path

from tunery.cli._verification import servers
from tunery.local.paths import DataDir


def test_external_servers_need_no_stack(tmp_path: Path) -> None:
    environ = {"TUNERY_KAFKA_BOOTSTRAP": "k:9092", "TUNERY_POSTGRES_DSN": "postgresql://db/x"}
    kafka, dsn = servers(DataDir(tmp_path), environ)
    assert (kafka.bootstrap, dsn) == ("k:9092", "postgresql://db/x")
