"""Jars: only files whose hash is in the lock enter the folder."""

import hashlib
from pathlib import Path

import pytest

from tunery.local import jars
from tunery.local.errors import LocalError


def make_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    lock = tmp_path / "jars.lock"
    lock.write_text(f"# head\na.b:c:1 sha256:{hashlib.sha256(content).hexdigest()}\n")
    monkeypatch.setattr(jars, "LOCK", lock)


def fetch(jar: jars.Jar, scratch: Path) -> Path:
    path = scratch / jar.file_name
    path.write_bytes(b"bytes of the jar")
    return path


def test_the_lock_in_the_repository_names_kafka_and_no_host() -> None:
    text = jars.LOCK.read_text(encoding="utf-8")
    names = {jar.artifact for jar in jars.parse_lock(text)}
    assert {"kafka_2.13", "kafka-server", "slf4j-simple"} <= names
    assert "://" not in text


def test_a_jar_is_added_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_lock(tmp_path, monkeypatch, b"bytes of the jar")
    target = tmp_path / "jars"
    assert jars.install(target, fetch) == (target, 1)
    assert (target / "c-1.jar").read_bytes() == b"bytes of the jar"
    assert jars.install(target, fetch) == (target, 0)


def test_another_hash_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_lock(tmp_path, monkeypatch, b"what was locked")
    with pytest.raises(LocalError, match=r"c-1\.jar: SHA-256 is .* jars\.lock says"):
        jars.install(tmp_path / "jars", fetch)
    assert list((tmp_path / "jars").iterdir()) == []


def test_a_bad_line_is_named() -> None:
    with pytest.raises(LocalError, match="line 2: not `group:artifact:version"):
        jars.parse_lock("# head\nkafka 4.3.1\n")
