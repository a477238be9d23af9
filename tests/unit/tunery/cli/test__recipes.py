"""Recipes in files: problems with their places, options that replace fields, files uploaded."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tunery.cli.scripted_api import ScriptedApi, page
from tunery.cli._recipes import as_text, put, read_recipe, without_mixture

RECIPE = """\
version: 1
model: tiny
training_file: file-1
seed: 7
metadata: {team: search}
lora:
  rank: 8
training:
  learning_rate: 2e-4
"""
NEWER = (
    "this recipe is of version 2, and version 1 is the newest that is known here: update Tunery, "
    "or write the recipe for that version"
)
BODY = {
    "model": "tiny",
    "training_file": "file-1",
    "seed": 7,
    "metadata": {"team": "search"},
    "lora": {"rank": 8},
    "training": {"learning_rate": 0.0002},
}
JOB: dict[str, Any] = {
    "id": "ftjob-1",
    "status": "queued",
    "phase": "queued",
    "model": "tiny",
    "queue": None,
}
JOB |= {"fine_tuned_model": None, "node": None, "progress": None, "gate": None, "error": None}
JOB |= {"cost": {"amount_micro": 0, "amount_max_micro": 1, "currency": "EUR"}}


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "faq.yaml"
    path.write_text(RECIPE)
    return path


def submitted(api: ScriptedApi, *words: str) -> Any:
    done = api.run("job", "submit", *words, "--json")
    assert done.exit_code == 0, done.output
    return api.bodies[-1]


def test_a_recipe_is_submitted_and_options_replace_what_it_says(
    recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = ScriptedApi(monkeypatch, {"POST /fine_tuning/jobs": JOB})
    assert submitted(api, "--recipe", str(recipe)) == BODY
    words = ("--model", "small", "--epochs", "5", "--seed", "8", "--set", "training.rank=4")
    assert submitted(api, "--recipe", str(recipe), *words) == {
        **BODY,
        "model": "small",
        "seed": 8,
        "lora": {},
        "training": {"learning_rate": 0.0002, "n_epochs": 5, "rank": 4},
    }


def test_the_files_of_a_recipe_are_named_from_its_folder(
    recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = recipe.with_name("rows.jsonl")
    rows.write_text("{}\n")
    recipe.write_text(RECIPE.replace("file-1", "rows.jsonl"))
    file = {
        "id": "file-2",
        "sha256": sha256(rows.read_bytes()).hexdigest(),
        "status": "processed",
        "validation": {"tokens": {"tiny": 9}},
    }
    answers = {"GET /files": page(file), "GET /files/file-2": file, "POST /fine_tuning/jobs": JOB}
    answers["POST /fine_tuning/jobs/estimate"] = {}
    api = ScriptedApi(monkeypatch, answers)
    assert submitted(api, "--recipe", str(recipe)) == {**BODY, "training_file": "file-2"}


def test_every_problem_of_a_recipe_has_its_line_and_column(
    recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe.write_text(
        "version: 1\nmodel: 3\ntraining:\n  rnk: 8\n  batch_size: 1000\nplacement:\n"
        "  domian: a\neval: {drop_max: 2}\nlora: {dropout: high}\n"
    )
    api = ScriptedApi(monkeypatch, {})
    done = api.run("job", "submit", "--recipe", str(recipe), "--file", "file-1")
    assert (done.exit_code, api.asked) == (2, [])
    assert done.output.replace(f"{recipe}:", "").splitlines() == [
        "Error: 6 problems",
        "  2:1: model: must be text",
        "  4:3: training.rnk: is not known; did you mean rank?",
        '  5:3: training.batch_size: must be a whole number from 1 to 256, or "auto"; it is 1000',
        "  7:3: placement.domian: is not known; did you mean domain?",
        '  8:8: eval.drop_max: must be a number from 0 to 0.5, or "auto"; it is 2',
        "  9:8: lora.dropout: must be a number from 0 to 0.9, or \"auto\"; it is 'high'",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("model: tiny\n", ": version: is required: write version: 1"),
        ("version: one\n", ":1:1: version: must be 1"),
        (
            "version: 2\nmodel: tiny\nspeed: 3\n",
            f":1:1: version: {NEWER}",
        ),
        ("version: 1\na: b: c\n", ":2:5: is not valid YAML: mapping values are not allowed here"),
    ],
)
def test_a_recipe_of_another_version_is_refused_for_that_alone(
    text: str, problem: str, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe.write_text(text)
    done = ScriptedApi(monkeypatch, {}).run("job", "submit", "--recipe", str(recipe))
    assert (done.exit_code, done.output) == (2, f"Error: {recipe}{problem}\n")


def test_a_recipe_is_printed_and_not_submitted(
    recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = ScriptedApi(monkeypatch, {"GET /fine_tuning/jobs/ftjob-1/recipe": {"recipe": BODY}})
    words = ("--model", "tiny", "--file", "a b.jsonl", "--set", "lora.rank=4", "--print-recipe")
    printed = api.run("job", "submit", *words).output
    assert printed == ('version: 1\nmodel: tiny\ntraining_file: "a b.jsonl"\nlora:\n  rank: 4\n')
    assert api.asked == []
    shown = api.run("job", "recipe", "ftjob-1")
    assert shown.output == RECIPE.removeprefix("version: 1\n").replace(
        "metadata: {team: search}", "metadata:\n  team: search"
    ).replace("2e-4", "0.0002")
    assert json.loads(api.run("job", "recipe", "ftjob-1", "--json").output) == BODY


def test_without_a_recipe_a_model_and_a_file_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ScriptedApi(monkeypatch, {})
    done = api.run("job", "submit", "--model", "tiny")
    assert done.exit_code == 2
    assert "Missing option '--file', or a --recipe that says it." in done.output


def test_a_setting_replaces_the_same_one_in_other_groups() -> None:
    recipe: dict[str, Any] = {
        "lora": {"rank": 4},
        "method": {"type": "supervised", "supervised": {"hyperparameters": {"rank": 5}}},
    }
    put(recipe, "training.rank", 6)
    assert recipe == {
        "lora": {},
        "method": {"type": "supervised", "supervised": {"hyperparameters": {}}},
        "training": {"rank": 6},
    }


def test_mixture_files_are_named_from_the_folder_of_the_recipe(tmp_path: Path) -> None:
    path = tmp_path / "mixed.yaml"
    path.write_text(
        "version: 1\nmodel: tiny\ntraining_file: file-1\ntraining:\n  mixture:\n"
        "    - file: rows.jsonl\n      weight: 0.5\n    - file: faq@2\n"
    )
    value = read_recipe(path).value
    assert value["training"]["mixture"] == [
        {"file": str(tmp_path / "rows.jsonl"), "weight": 0.5},
        {"file": "faq@2"},
    ]
    assert without_mixture(value)["training"] == {}
    text = path.with_name("again.yaml")
    text.write_text(as_text(value))
    assert read_recipe(text).value == value
