"""`tunery grader`: a grader is checked and tried without a server."""

import json
from pathlib import Path

from click.testing import CliRunner, Result

from tests.unit.tunery.graders.test_grader import CHECK, MULTI
from tunery.cli.main import main


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["grader", *words])


def test_a_sample_is_graded(tmp_path: Path) -> None:
    file = tmp_path / "grader.json"
    file.write_text(json.dumps(MULTI))
    sample = ("--item", '{"answer": "Paris"}', "--sample", "Paris")
    done = run("run", str(file), *sample, "--json")
    scores = {"city": 1.0, "alike": 1.0}
    assert json.loads(done.output) == {"reward": 1.0, "scores": scores, "errors": {}}
    assert "1.0000" in run("run", str(file), *sample).output
    assert "multi" in run("validate", str(file)).output


def test_what_is_wrong_is_named_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "grader.json"
    file.write_text(json.dumps({**CHECK, "operation": "regex"}))
    done = run("validate", str(file))
    assert done.exit_code == 1
    assert "grader.json: operation: must be one of eq" in done.output
    file.write_text("{")
    assert "is not JSON" in run("validate", str(file)).output
    file.write_text(json.dumps(CHECK))
    assert "--item is no JSON object" in run("run", str(file), "--item", "3", "--sample", "").output
