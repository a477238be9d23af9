"""A job as one file: its offline run of W&B, packed. `python -m tunery.mirrors.wandb_files FILE`.

W&B's package starts programs and threads of its own, and reads the environment, so it runs in a
process of its own. That reads the job, its steps and the settings of its run from the standard
input, and writes the archive.
"""

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tunery.mirrors.wandb_runs import OfflineRun, RunRefused

RUN_S_MAX: Final = 600
PASSED_ON: Final = ("PATH", "PYTHONPATH", "LANG", "VIRTUAL_ENV")


def packed_run(
    job: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]
) -> bytes:
    """The archive of a job, whose folder `wandb sync` uploads. Raises RunRefused.

    settings: project, name, entity and tags
    """
    with tempfile.TemporaryDirectory(prefix="tunery-wandb-") as folder:
        archive = Path(folder) / "run.zip"
        known = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        try:
            done = subprocess.run(
                [sys.executable, "-m", "tunery.mirrors.wandb_files", str(archive)],
                input=json.dumps({"job": job, "steps": steps, "settings": settings}).encode(),
                env={**known, "HOME": folder, "WANDB_MODE": "offline"},
                capture_output=True,
                timeout=RUN_S_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise RunRefused(f"W&B's package took more than {RUN_S_MAX} s") from error
        if done.returncode != 0:
            raise RunRefused(done.stderr.decode(errors="replace").strip().rpartition("\n")[2])
        return archive.read_bytes()


def write_run(archive: Path, asked: Mapping[str, Any]) -> None:
    """Write the run next to the archive, then pack it. Raises RunRefused, OSError."""
    run = OfflineRun(archive.parent / "runs", **asked["settings"])
    run.begin(asked["job"])
    for step in asked["steps"]:
        run.add(step)
    run.end(asked["job"])
    run.close()
    folder = Path(run.destination)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            packed.write(file, file.relative_to(folder.parent))


if __name__ == "__main__":
    write_run(Path(sys.argv[1]), json.load(sys.stdin))
