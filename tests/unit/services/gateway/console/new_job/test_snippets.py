"""The same submission with curl, from Python and on the command line."""

import ast
import json
import shlex

import pytest
from click.testing import CliRunner

from services.gateway.console.new_job.page import snippets
from tunery.cli.main import main

BODY = {
    "model": "tiny",
    "training_file": "file-1",
    "method": {"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 3}}},
    "suffix": 'it\'s "x" $HOME',
    "lora": {"rank": 8},
}


def test_curl_sends_the_body_as_it_is() -> None:
    text = snippets(BODY)["curl"]
    assert json.loads(text.split("<<'BODY'\n")[1].removesuffix("\nBODY")) == BODY


def test_python_has_the_fields_of_others_apart() -> None:
    call = ast.parse(snippets(BODY)["Python"]).body[-1]
    assert isinstance(call, ast.Assign)
    assert isinstance(call.value, ast.Call)
    arguments = {word.arg: ast.literal_eval(word.value) for word in call.value.keywords}
    assert arguments.pop("extra_body") == {"lora": BODY["lora"]}
    assert arguments == {name: value for name, value in BODY.items() if name != "lora"}


def test_the_command_is_one_that_the_command_line_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    words = shlex.split(snippets(BODY)["the command line"])
    assert words[0] == "tunery"
    done = CliRunner().invoke(main, [*words[1:], "--print-recipe", "--json"])
    assert done.exit_code == 0, done.output
    recipe = json.loads(done.output)
    assert recipe["suffix"] == BODY["suffix"]
    assert recipe["lora"] == BODY["lora"]
    assert "3" in json.dumps(recipe)
