"""Request bodies from options, and estimates in a terminal."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.unit.tunery.cli.scripted_api import ScriptedApi, page, refusal
from tunery.cli._recipes import put
from tunery.cli.job import _parsed
from tunery.cli.main import main


def test_a_setting_goes_where_its_path_says() -> None:
    body: dict[str, Any] = {"lora": {"rank": 4}}
    for setting in ("lora.alpha=8", "training.precision=bf16", "seed=7"):
        put(body, *_parsed(setting))
    assert body == {
        "lora": {"rank": 4, "alpha": 8},
        "training": {"precision": "bf16"},
        "seed": 7,
    }


def test_bases_f7_a_template_and_end_tokens_are_in_the_body(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    api = ScriptedApi(monkeypatch, {"POST /fine_tuning/jobs/estimate": ESTIMATE})
    path = tmp_path / "own.jinja"
    path.write_text("{{ messages }}\n", encoding="utf-8-sig")
    words = ("job", "estimate", *JOB, "--chat-template", str(path))
    assert api.run(*words, "--eot-token", "<|a|>", "--eot-token", "<|b|>").exit_code == 0
    training = {"chat_template": "{{ messages }}\n", "eot_tokens": ["<|a|>", "<|b|>"]}
    assert api.bodies[-1]["training"] == training
    path.write_bytes(b"\xff")
    refused = api.run(*words)
    assert (refused.exit_code, "is not text in UTF-8: byte 0" in refused.output) == (2, True)


def test_first_hour_23_prompts_of_ones_own_are_in_the_body(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    api = ScriptedApi(monkeypatch, {"POST /fine_tuning/jobs/estimate": ESTIMATE})
    path = tmp_path / "prompts"
    words = ("job", "estimate", *JOB, "--set", "eval.drop_max=0.2")
    own = ("--prompt", "Who are you?", "--prompts", str(path))
    for text in ('["What is the sea?", "Why?"]', "What is the sea?\n\nWhy?\n"):
        path.write_text(text, encoding="utf-8")
        assert api.run(*words, *own).exit_code == 0
        prompts = ["Who are you?", "What is the sea?", "Why?"]
        assert api.bodies[-1]["eval"] == {"drop_max": 0.2, "prompts": prompts}
    path.write_text("[broken", encoding="utf-8")
    assert "begins like a JSON array and is none" in api.run(*words, *own).output
    api.run(*words)
    assert api.bodies[-1]["eval"] == {"drop_max": 0.2}


def test_tags_are_in_the_body_where_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ScriptedApi(monkeypatch, {"POST /fine_tuning/jobs/estimate": ESTIMATE})
    assert api.run("job", "estimate", *JOB, "--tag", "night", "--tag", "v2").exit_code == 0
    assert api.bodies[-1]["tags"] == ["night", "v2"]
    assert api.run("job", "estimate", *JOB).exit_code == 0
    assert "tags" not in api.bodies[-1]


def test_without_an_api_the_fix_is_named(tmp_path: object) -> None:
    result = CliRunner().invoke(
        main, ["job", "list", "--data-dir", str(tmp_path)], env={"OPENAI_BASE_URL": ""}
    )
    assert result.exit_code == 1
    assert "No API is running or configured." in result.output
    assert "fix: start a stack with `tunery up`" in result.output


def test_a_model_of_device_is_a_field_of_the_placement(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ScriptedApi(monkeypatch, {"POST /fine_tuning/jobs/estimate": ESTIMATE})
    words = ("--accelerator", "h200", "--spot", "--tolerate", "research", "--domain", "rack-3")
    more = ("--domain-wait", "10", "--set", "placement.finish_by=1800000000")
    assert api.run("job", "estimate", *JOB, *words, *more).exit_code == 0
    assert api.bodies[-1]["placement"] == {
        "accelerator": "h200",
        "spot": True,
        "tolerations": ["research"],
        "domain": "rack-3",
        "domain_wait_minutes": 10,
        "finish_by": 1_800_000_000,
    }


REFUSAL = "This job may cost 1.60 EUR, and its budget is 0.30."
ESTIMATE: dict[str, Any] = {
    "object": "fine_tuning.job.estimate",
    "estimation_available": True,
    "allowed_to_proceed": True,
    "refusal": None,
    "hyperparameters": {"n_epochs": 1},
    "trained_tokens": 1_000,
    "steps": 4,
    "memory_bytes": 2_000_000_000,
    "train_gpu_ms": 60_000,
    "eval_gpu_ms": 60_000,
    "expected_duration_seconds": 120,
    "currency": "EUR",
    "amount_micro": 80_000,
    "amount_max_micro": 1_600_000,
}
REFUSED = {**ESTIMATE, "allowed_to_proceed": False, "refusal": REFUSAL}
JOB = ("--model", "tiny", "--file", "file-" + "1" * 24)


@pytest.mark.parametrize("options", [(), ("--watch",), ("--json",)])
def test_first_hour_01_a_dry_run_is_shown_as_an_estimate(
    options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dry run ended with a traceback: KeyError 'progress'."""
    api = ScriptedApi(monkeypatch, {"POST /fine_tuning/jobs/estimate": ESTIMATE})
    result = api.run("job", "submit", *JOB, "--set", "dry_run=true", *options)
    assert (result.exit_code, result.exception) == (0, None)
    assert ("1.6000 EUR" in result.output) == ("--json" not in options)
    assert api.bodies[-1]["dry_run"] is True


@pytest.mark.parametrize("words", [("estimate",), ("submit", "--set", "dry_run=true")])
def test_first_hour_02_an_estimate_says_first_that_the_job_would_be_refused(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The estimate showed the price and exited with 0; only its JSON had the refusal."""
    api = ScriptedApi(monkeypatch, {"POST /fine_tuning/jobs/estimate": REFUSED})
    result = api.run("job", words[0], *JOB, *words[1:])
    assert result.exit_code == 1
    assert REFUSAL in result.output.splitlines()[0]
    as_json = api.run("job", words[0], *JOB, *words[1:], "--json")
    assert (as_json.exit_code, json.loads(as_json.output)) == (1, REFUSED)


def test_a_plan_that_would_be_refused_says_so_first(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = {"code": "budget_too_small", "message": REFUSAL, "param": "budget"}
    plan: dict[str, Any] = {
        "allowed_to_proceed": False,
        "refusals": [refused],
        "unchecked": [],
        "settings": [],
        "nodes": [],
        "queue": None,
        "duplicate_of": None,
        "estimate": {**ESTIMATE, "model": "tiny"},
    }
    api = ScriptedApi(monkeypatch, {"POST /fine_tuning/jobs/plan": plan})
    result = api.run("job", "plan", *JOB)
    assert result.exit_code == 1
    assert result.output.splitlines()[0] == f"refused: budget_too_small  {REFUSAL}"
    as_json = api.run("job", "plan", *JOB, "--json")
    assert (as_json.exit_code, json.loads(as_json.output)) == (1, plan)
    assert api.asked == ["POST /fine_tuning/jobs/plan"] * 2


@pytest.mark.parametrize(("words", "is_warned"), [((), True), (("--allow-duplicate",), False)])
def test_a_repeated_configuration_shows_the_earlier_job(
    words: tuple[str, ...], is_warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = {"id": "ftjob-0", "status": "succeeded", "fine_tuned_model": "ft:tiny:a"}
    job: dict[str, Any] = {
        "id": "ftjob-1",
        "status": "queued",
        "phase": "queued",
        "model": "tiny",
        "cost": {"amount_micro": 0, "amount_max_micro": 1, "currency": "EUR"},
        "duplicate_of": earlier,
        **dict.fromkeys(("fine_tuned_model", "node", "progress", "queue", "gate", "error")),
    }
    api = ScriptedApi(monkeypatch, {"POST /fine_tuning/jobs": job})
    result = api.run("job", "submit", *JOB, *words)
    assert result.exit_code == 0
    words_of_warning = "Same model, data and settings as ftjob-0 (succeeded, ft:tiny:a)."
    assert (words_of_warning in result.stderr) == is_warned
    assert json.loads(api.run("job", "submit", *JOB, "--json").stdout) == job


@pytest.mark.parametrize("words", [("watch", "ftjob-1"), ("submit", *JOB, "--watch")])
def test_first_hour_09_an_interrupted_watch_says_that_the_job_goes_on(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command printed "Aborted!", as if the job had been."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tunery.cli._watch.follow", interrupted)
    api = ScriptedApi(monkeypatch, {"POST /fine_tuning/jobs": {"id": "ftjob-1"}})
    result = api.run("job", *words)
    assert result.exit_code == 130
    assert "The job goes on. `tunery job watch ftjob-1` follows it again" in result.output
    assert "Aborted" not in result.output


def test_first_hour_22_a_wrong_request_uploads_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`--set lora.rnk=8` left a file."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text("{}\n")
    wrong = refusal(400, "invalid_value", "lora.rnk: unknown; lora takes rank")
    api = ScriptedApi(monkeypatch, {"POST /fine_tuning/jobs/estimate": wrong})
    words = ("submit", "--model", "tiny", "--file", str(rows), "--set", "lora.rnk=8")
    done = api.run("job", *words)
    assert (done.exit_code, "lora.rnk: unknown" in done.output) == (1, True)
    assert api.asked == ["POST /fine_tuning/jobs/estimate"]
    assert api.bodies == [{"model": "tiny", "lora": {"rnk": 8}}]


@pytest.mark.parametrize("known", ["same", "another model", "other bytes", "rejected"])
def test_first_hour_22_a_file_that_was_uploaded_is_not_uploaded_again(
    known: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each estimate and each submission left a new copy, which was checked again."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text("{}\n")
    file = {
        "id": "file-old",
        "sha256": "0" * 64 if known == "other bytes" else sha256(rows.read_bytes()).hexdigest(),
        "status": "error" if known == "rejected" else "processed",
        "status_details": None,
        "validation": {"tokens": {"other" if known == "another model" else "tiny": 9}},
    }
    answers = {
        "GET /files": page(file),
        "POST /files": {**file, "id": "file-new"},
        "GET /files/file-old": file,
        "GET /files/file-new": {**file, "id": "file-new", "status": "processed"},
        "POST /fine_tuning/jobs/estimate": ESTIMATE,
    }
    api = ScriptedApi(monkeypatch, answers)
    done = api.run("job", "estimate", "--model", "tiny", "--file", str(rows), "--json")
    assert done.exit_code == 0, done.output
    expected = "file-old" if known == "same" else "file-new"
    assert json.loads(api.requests[-1].content)["training_file"] == expected
    assert ("POST /files" in api.asked) == (known != "same")


def test_mixture_further_files_have_their_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ScriptedApi(monkeypatch, {"POST /fine_tuning/jobs/estimate": ESTIMATE})
    files = ("--mix", "faq@2=0.3", "--mix", "file-" + "2" * 24)
    assert api.run("job", "estimate", *JOB, *files).exit_code == 0
    assert api.bodies[-1]["training"]["mixture"] == [
        {"file": "faq@2", "weight": 0.3},
        {"file": "file-" + "2" * 24},
    ]
    wrong = api.run("job", "estimate", *JOB, "--mix", "faq@2=much")
    assert wrong.exit_code == 2
    assert "'much' is no weight: write faq@2=0.3" in wrong.output
    missing = api.run("job", "estimate", *JOB, "--mix", "nowhere.jsonl=2")
    assert "Invalid value for --mix: nowhere.jsonl is neither" in missing.output
