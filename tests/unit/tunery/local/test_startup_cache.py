"""The cache is renamed to its name when it is complete, and replaces those of other versions."""

from pathlib import Path

import pytest

from tunery.local import kafka, startup_cache
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir


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
    monkeypatch.setattr(startup_cache, "_record", record)
    assert startup_cache.create() == target
    assert target.read_bytes() == b"classes"
    assert list(target.parent.iterdir()) == [target]


def test_without_a_cache_of_java_the_old_one_stays(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def record(_folders: DataDir, _cache: Path) -> None:
        """Java ended without one."""

    other = target.with_name("startup-old.aot")
    other.write_bytes(b"old")
    monkeypatch.setattr(startup_cache, "_record", record)
    with pytest.raises(LocalError, match="Java wrote no cache"):
        startup_cache.create()
    assert list(target.parent.iterdir()) == [other]
