"""Files are taken below a folder, through no link, and stay what they were when opened."""

import os
from pathlib import Path

import pytest

from tunery.confinement.taking import NotTaken, below, opened_within

pytestmark = pytest.mark.security


def test_a_file_is_taken_by_either_name_and_stays_the_same(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    file = tmp_path / "out" / "adapter.bin"
    file.write_bytes(b"as it was hashed")
    for path in (file, Path("out/adapter.bin")):
        with opened_within(tmp_path, path) as opened:
            assert opened.read_bytes() == b"as it was hashed"
    with opened_within(tmp_path, file) as opened:
        file.unlink()
        file.symlink_to("/etc/passwd")
        assert opened.read_bytes() == b"as it was hashed"


def test_security_h1_all_but_regular_files_below_the_folder_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "lease"
    (folder / "below").mkdir(parents=True)
    (tmp_path / "secret").write_text("x")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "out").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    for path in ("link", "out/secret", "pipe", "below", "../secret", "below/../../secret", ""):
        with pytest.raises(NotTaken), opened_within(folder, Path(path)):
            pass
    with pytest.raises(NotTaken), opened_within(folder, tmp_path / "secret"):
        pass
    with pytest.raises(FileNotFoundError), opened_within(folder, Path("missing")):
        pass
    (tmp_path / "elsewhere").symlink_to(folder)
    with (
        pytest.raises(OSError, match="Not a directory"),
        opened_within(tmp_path / "elsewhere", Path("x")),
    ):
        pass


def test_a_name_leads_to_no_place_but_below_the_folder(tmp_path: Path) -> None:
    assert below(tmp_path, "0/step-1/adapter.bin") == tmp_path / "0" / "step-1" / "adapter.bin"
    for name in ("../secret", "0/../../secret", "/etc/passwd", str(tmp_path / "inside"), "", "."):
        with pytest.raises(NotTaken):
            below(tmp_path, name)
