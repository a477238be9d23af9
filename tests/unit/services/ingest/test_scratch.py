"""Folders for files in work: private, and swept when their process was killed."""

import os
import time
from pathlib import Path

from services.ingest.scratch import named_folder, new_folder, sweep


def age(path: Path, seconds: int) -> None:
    past = time.time() - seconds
    os.utime(path, (past, past))


def test_a_new_folder_is_empty_and_for_its_owner_alone(tmp_path: Path) -> None:
    scratch = tmp_path / "a" / "b"
    folders = {new_folder(scratch), new_folder(scratch)}
    assert len(folders) == 2
    for folder in folders:
        assert (list(folder.iterdir()), folder.stat().st_mode & 0o777) == ([], 0o700)


def test_folders_of_killed_processes_are_swept(tmp_path: Path) -> None:
    old, young = new_folder(tmp_path), new_folder(tmp_path)
    age(old, 100)
    assert sweep(tmp_path, 50_000) == 1
    assert (old.exists(), young.exists()) == (False, True)


def test_a_folder_in_which_a_file_changed_lately_is_in_use(tmp_path: Path) -> None:
    folder = named_folder(tmp_path, "p1")
    folder.mkdir()
    (folder / "chunk").touch()
    age(folder, 100)
    assert sweep(tmp_path, 50_000) == 0
    age(folder / "chunk", 100)
    assert sweep(tmp_path, 50_000) == 1


def test_a_plain_file_with_the_name_of_a_folder_is_left_alone(tmp_path: Path) -> None:
    file, folder = tmp_path / "work-notes", named_folder(tmp_path, "p1")
    file.touch()
    folder.mkdir()
    age(file, 100)
    age(folder, 100)
    assert sweep(tmp_path, 50_000) == 1
    assert (file.exists(), folder.exists()) == (True, False)


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "benchmarks"
    other.mkdir()
    age(other, 100)
    assert sweep(tmp_path, 0) == 0
    assert sweep(tmp_path / "missing", 0) == 0
    assert other.exists()
