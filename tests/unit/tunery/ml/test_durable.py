import shutil
from pathlib import Path

import pytest

from tunery.ml import durable
from tunery.ml.durable import PARTIAL_PREFIX, new_directory, remove_partials


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def test_a_directory_appears_whole(tmp_path: Path) -> None:
    with new_directory(tmp_path / "deep" / "made") as partial:
        (partial / "a").write_bytes(b"1")
        assert not (tmp_path / "deep" / "made").exists()
    assert names(tmp_path / "deep") == ["made"]
    assert (tmp_path / "deep" / "made" / "a").read_bytes() == b"1"


def failing(final: Path) -> None:
    with new_directory(final) as partial:
        (partial / "a").write_bytes(b"1")
        raise RuntimeError("disk full")


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="disk full"):
        failing(tmp_path / "made")
    assert names(tmp_path) == []


def test_an_older_directory_is_replaced_whole(tmp_path: Path) -> None:
    for name in ("old", "new"):
        with new_directory(tmp_path / "made") as partial:
            (partial / name).write_text(name)
    assert names(tmp_path / "made") == ["new"]


def test_temporary_directories_of_killed_writers_are_removed(tmp_path: Path) -> None:
    (tmp_path / "tmp-step-00000003-abc").mkdir()
    (tmp_path / "step-00000002").mkdir()
    remove_partials(tmp_path)
    assert names(tmp_path) == ["step-00000002"]


def test_a_directory_that_goes_is_never_seen_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off in the middle of the deletion, only a temporary name is left, also of a new one."""
    final = tmp_path / "step-1"
    with new_directory(final) as partial:
        (partial / "a").write_text("old")

    def cut_off(path: Path, ignore_errors: bool = False) -> None:
        next(path.iterdir()).unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", cut_off)
    with pytest.raises(KeyboardInterrupt):
        durable.remove_directory(final)
    assert [path.name.startswith(PARTIAL_PREFIX) for path in tmp_path.iterdir()] == [True]
    monkeypatch.undo()
    remove_partials(tmp_path)
    assert list(tmp_path.iterdir()) == []
