"""Sweeps in a terminal: read from a file, shown with the best first."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tunery.cli.scripted_api import ScriptedApi

SWEEP = """\
version: 1
method: halving
trials: 4
min_steps: 10
max_steps: 40
parameters:
  learning_rate: {min: 1e-5, max: 1e-3, scale: log}
job:
  model: tiny
  training_file: file-1
  lora: {rank: 8}
"""


def run(trial: int, rung: int, loss: float | None, status: str | None) -> dict[str, Any]:
    return {
        "job_id": f"ftjob-{trial}{rung}",
        "rung": rung,
        "status": status,
        "validation_loss": loss,
        "fine_tuned_model": None,
        "amount_micro": 1_000,
        "configurations": 1,
        "skipped": None,
    }


SHOWN: dict[str, Any] = {
    "id": "sweep-1",
    "status": "running",
    "method": "halving",
    "model": "tiny",
    "rung": 1,
    "rungs": [10, 40],
    "reason": None,
    "best_job_id": "ftjob-11",
    "currency": "EUR",
    "amount_micro": 3_000,
    "max_gpu_hours": 2.5,
    "max_amount_micro": None,
    "created_at": 1,
    "trials": [
        {
            "trial": 0,
            "values": {"learning_rate": 0.1},
            "jobs": [run(0, 0, 2.0, "succeeded"), run(0, 1, None, None)],
        },
        {
            "trial": 1,
            "values": {"learning_rate": 0.2},
            "jobs": [run(1, 0, 1.0, "succeeded"), run(1, 1, 0.5, "succeeded")],
        },
        {"trial": 2, "values": {"learning_rate": 0.3}, "jobs": [run(2, 0, None, None)]},
    ],
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "sweep.yaml"
    file.write_text(SWEEP)
    return file


def test_a_sweep_is_submitted_and_shown_with_the_best_first(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = ScriptedApi(monkeypatch, {"POST /sweeps": SHOWN})
    done = api.run("sweep", "run", str(path))
    assert done.exit_code == 0, done.output
    assert api.bodies[-1] == {
        "method": "halving",
        "trials": 4,
        "min_steps": 10,
        "max_steps": 40,
        "parameters": {"learning_rate": {"min": 1e-5, "max": 1e-3, "scale": "log"}},
        "job": {"model": "tiny", "training_file": "file-1", "lora": {"rank": 8}},
    }
    lines = [line.split() for line in done.output.splitlines()]
    assert ["budget", "2.5", "GPU-h"] in lines
    rows = lines[lines.index([]) + 2 :]
    assert [row[0] for row in rows] == ["ftjob-11", "ftjob-10", "ftjob-00", "ftjob-20"]
    assert rows[3][1:3] == ["not", "yet"]


def test_every_problem_of_a_sweep_has_its_line_and_column(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SWEEP.replace("version: 1", "version: 2").replace("trials:", "trails:")
    path.write_text(text.replace("rank: 8", "rnk: 8"))
    api = ScriptedApi(monkeypatch, {})
    done = api.run("sweep", "run", str(path))
    assert (done.exit_code, api.asked) == (2, [])
    assert done.output.replace(f"{path}:", "").splitlines() == [
        "Error: 3 problems",
        "  1:1: version: must be 1",
        "  3:1: trails: is not known; did you mean trials?",
        "  11:10: job.lora.rnk: is not known; did you mean rank?",
    ]


def test_sweeps_are_listed_shown_and_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {
        "GET /sweeps": {"data": [SHOWN]},
        "GET /sweeps/sweep-1": SHOWN,
        "POST /sweeps/sweep-1/cancel": {**SHOWN, "status": "cancelled"},
    }
    api = ScriptedApi(monkeypatch, answers)
    assert "ftjob-11" in api.run("sweep", "list").output
    assert json.loads(api.run("sweep", "show", "sweep-1", "--json").output) == SHOWN
    assert "cancelled" in api.run("sweep", "cancel", "sweep-1").output


def test_the_best_jobs_of_a_sweep_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    cost = {"amount_micro": 1, "currency": "EUR", "billable_gpu_ms": 1}
    answers: dict[str, Any] = {"GET /sweeps/sweep-1": SHOWN}
    for name in ("11", "10", "00"):
        answers[f"GET /fine_tuning/jobs/ftjob-{name}"] = {"id": f"ftjob-{name}", "cost": cost}
    api = ScriptedApi(monkeypatch, answers)
    done = api.run("job", "compare", "--sweep", "sweep-1", "--all")
    assert done.output.splitlines()[0].split() == ["ftjob-11", "ftjob-10", "ftjob-00"]
    assert api.run("job", "compare").exit_code == 2
    assert api.run("job", "compare", "ftjob-11", "--sweep", "sweep-1").exit_code == 2


def test_configurations_that_take_turns_share_a_job_and_its_cost(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = {**run(0, 0, 2.0, "succeeded"), "configurations": 4}
    shown = {**SHOWN, "trials": [{"trial": 0, "values": {"rank": 8}, "jobs": [shared]}]}
    api = ScriptedApi(monkeypatch, {"POST /sweeps": shown})
    done = api.run("sweep", "run", str(path), "--colocate", "4")
    assert done.exit_code == 0, done.output
    assert api.bodies[-1]["colocate"] == 4
    assert "0.0010 EUR for 4" in done.output
    assert api.run("sweep", "run", str(path), "--colocate", "9").exit_code == 2
