"""`sweep` removes data directories of test runs that were killed, and no others."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.stacks import sweep, temporary_data_dir

ROOT = Path(__file__).parents[3]
OTHER_RUN = """
import sys, time
from tests.stacks import temporary_data_dir
with temporary_data_dir() as folder:
    (folder / "something").touch()
    print(folder, flush=True)
    sys.stdin.read()
"""


def test_only_directories_of_killed_runs_are_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with (
        temporary_data_dir() as ours,
        subprocess.Popen(
            [sys.executable, "-c", OTHER_RUN],
            cwd=ROOT,
            env={"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as other,
    ):
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        (ours / "something").touch()
        sweep()
        assert ours.exists()
        assert theirs.exists(), "its test run is alive, though no supervisor runs in it"
        other.kill()
        other.wait()
        sweep()
        assert ours.exists()
        assert not theirs.exists()
    assert not ours.exists()
