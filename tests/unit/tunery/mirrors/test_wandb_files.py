"""An offline run as one file, over a stand-in for W&B's package. `make test-clients` has the real
one.
"""

import io
import json
import zipfile
from pathlib import Path

import pytest

from tests.unit.tunery.mirrors.jobs import JOB_ID, job, step
from tunery.mirrors.wandb_files import packed_run
from tunery.mirrors.wandb_runs import RunRefused

STAND_IN = """
import json, os, pathlib

class Error(Exception):
    pass

class Settings:
    def __init__(self, **options):
        pass

class Run:
    def __init__(self, dir, id, **options):
        if options["project"] == "refused":
            raise Error("invalid project name")
        self.folder = pathlib.Path(dir) / "wandb" / f"offline-run-1-{id}"
        self.dir = str(self.folder / "files")
        pathlib.Path(self.dir).mkdir(parents=True)
        self.summary, self.steps = {}, []
        self.known = {name: options[name] for name in ("project", "name", "entity", "tags")}

    def log(self, figures, step):
        self.steps.append(step)

    def finish(self, exit_code):
        said = {**self.known, "steps": self.steps, "environment": sorted(os.environ)}
        (self.folder / "run.wandb").write_text(json.dumps(said))

def init(mode, settings, config, **options):
    assert mode == "offline"
    return Run(**options)
"""


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wandb.py").write_text(STAND_IN)
    root = Path(__file__).parents[4]
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{root}")
    monkeypatch.setenv("TUNERY_ADMIN_KEY", "of the gateway")


def test_a_job_is_one_archive_with_the_folder_of_its_run() -> None:
    settings = {"project": "lamps", "name": "try 1", "tags": ["a"]}
    packed = zipfile.ZipFile(io.BytesIO(packed_run(job(), [step(1), step(2)], settings)))
    assert packed.namelist() == [f"offline-run-1-{JOB_ID}/run.wandb"]
    said = json.loads(packed.read(packed.namelist()[0]))
    assert (said["project"], said["name"], said["entity"]) == ("lamps", "try 1", None)
    assert (said["tags"], said["steps"]) == (["a"], [1, 2])
    assert "TUNERY_ADMIN_KEY" not in said["environment"]


def test_errors_of_the_package_are_shown() -> None:
    with pytest.raises(RunRefused, match="invalid project name"):
        packed_run(job(), [], {"project": "refused"})
