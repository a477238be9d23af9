"""Offline runs over a stand-in for W&B's package. `make test-clients` has the real one."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.unit.tunery.mirrors.jobs import JOB_ID, job, step
from tunery.mirrors.wandb_runs import OfflineRun, RunRefused, is_installed


class FakeError(Exception):
    """What W&B's package raises."""


class FakeRun:
    """What the mirror uses of a run of W&B's."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        if "/" in options["project"]:
            raise FakeError("invalid project name")
        earlier = len([*Path(options["dir"]).glob("wandb/*")])
        folder = Path(options["dir"]) / "wandb" / f"offline-run-{earlier}-{options['id']}"
        (folder / "files").mkdir(parents=True)
        self.dir = str(folder / "files")
        self.steps: list[int] = []
        self.summary: dict[str, Any] = {}
        self.exit_codes: list[int] = []

    def log(self, figures: dict[str, float], step: int) -> None:
        assert figures["train/loss"] == 3.0 - step
        self.steps.append(step)

    def finish(self, exit_code: int) -> None:
        self.exit_codes.append(exit_code)


@pytest.fixture(name="runs")
def fake_package(monkeypatch: pytest.MonkeyPatch) -> list[FakeRun]:
    runs: list[FakeRun] = []

    def init(**options: Any) -> FakeRun:
        runs.append(FakeRun(**options))
        return runs[-1]

    package = ModuleType("wandb")
    package.__dict__.update(init=init, Settings=SimpleNamespace, Error=FakeError)
    monkeypatch.setitem(sys.modules, "wandb", package)
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    return runs


def test_a_run_that_is_written_again_replaces_the_earlier_one(
    runs: list[FakeRun], tmp_path: Path
) -> None:
    (tmp_path / "wandb" / "offline-run-9-ftjob-other").mkdir(parents=True)
    for _ in range(2):
        mirror = OfflineRun(tmp_path, "lamps")
        assert mirror.begin(job()) == 0
        for number in (1, 2, 3):
            mirror.add(step(number))
        mirror.end(job())
        mirror.close()
    assert [run.steps for run in runs] == [[1, 2, 3]] * 2
    assert runs[1].exit_codes == [0]
    assert runs[1].summary["gate"] == "pass"
    options = runs[1].options
    assert (options["mode"], options["project"], options["id"]) == ("offline", "lamps", JOB_ID)
    assert options["config"]["beta"] == 0.1
    kept = [path.name for path in (tmp_path / "wandb").iterdir()]
    assert sorted(kept) == sorted(["offline-run-9-ftjob-other", Path(mirror.destination).name])


def test_an_interrupted_run_is_closed_as_one_that_failed(
    runs: list[FakeRun], tmp_path: Path
) -> None:
    mirror = OfflineRun(tmp_path, "lamps")
    mirror.close()
    mirror.begin(job())
    mirror.close()
    assert runs[0].exit_codes == [1]


@pytest.mark.usefixtures("runs")
def test_errors_of_the_package_are_shown(tmp_path: Path) -> None:
    with pytest.raises(RunRefused, match="invalid project name"):
        OfflineRun(tmp_path, "a/b").begin(job())


def test_the_package_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tunery.mirrors.wandb_runs.PACKAGE", "json")
    assert is_installed()
    monkeypatch.setattr("tunery.mirrors.wandb_runs.PACKAGE", "no_such_package")
    assert not is_installed()
