"""A job as one HTML file."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tunery.cli.scripted_api import ScriptedApi, page, refusal

EVIL = "<script>alert('x')</script>\"'&"
JOB: dict[str, Any] = {
    "id": "ftjob-1",
    "created_at": 1_700_000_000,
    "finished_at": 1_700_000_900,
    "model": "smollm2",
    "fine_tuned_model": f"ft:smollm2:acme:{EVIL}:1",
    "status": "succeeded",
    "error": {"code": "x", "message": EVIL},
    "training_file": "file-1",
    "trained_tokens": 1_000,
    "hyperparameters": {"n_epochs": 3},
    "gate": {"verdict": "pass", "reasons": [EVIL], "skills": "kept", "advice": EVIL},
}
COST: dict[str, Any] = {
    "currency": "EUR",
    "amount_micro": 80_000,
    "net_gpu_ms": 60_000,
    "final": True,
    "lines": [
        {
            "kind": "usage",
            "role": "train",
            "attempt": 1,
            "used_gpu_ms": 90_000,
            "billable_gpu_ms": 60_000,
            "cause": EVIL,
        }
    ],
}
STEPS = [
    {"id": f"step-{step}", "step": step, "train_loss": loss, "valid_loss": None}
    for step, loss in ((2, 0.5), (2, 0.5), (1, 1.5))  # the second attempt computed step 2 again
]


def event(at: int, message: str, **data: Any) -> dict[str, Any]:
    fields = {"level": "info", "type": "message", "message": message, "details": data}
    return {"id": f"e-{at}", "created_at": 1_700_000_000 + at, **fields}


EVENTS = [
    event(30, EVIL),
    event(20, "Training has started", attempt=2, loaded_step=1),
    event(19, "Attempt 2", attempt=2),
    event(18, "Lost", attempt=1, outcome="lost"),
    event(10, "Training has started", attempt=1, loaded_step=0),
    event(5, "Attempt 1", attempt=1),
]
ANSWERS = {"data": [{"prompt": EVIL, "base": EVIL, "adapter": f"</pre>{EVIL}"}]}


class Tags(HTMLParser):
    """What elements and attributes a page has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += [name for name, _ in attrs]


def answers_of(path: str, answer: Any) -> dict[str, Any]:
    job = "GET /fine_tuning/jobs/ftjob-1"
    return {
        job: JOB,
        f"{job}/metrics": page(*STEPS),
        f"{job}/events": page(*EVENTS),
        f"{job}/cost": COST,
        f"{job}/answers": ANSWERS,
        **({f"{job}/{path}": answer} if path else {}),
    }


def test_exit_kit_a_report_is_one_file_that_loads_and_runs_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    api = ScriptedApi(monkeypatch, answers_of("", None))
    result = api.run("job", "report", "ftjob-1", "--output", str(tmp_path / "job.html"))
    assert result.exit_code == 0, result.output
    text = (tmp_path / "job.html").read_text(encoding="utf-8")
    tags = Tags(text)
    assert not {"script", "img", "link", "iframe", "object"} & {*tags.elements}
    assert not {"src", "href"} & {*tags.attributes}
    assert not [name for name in tags.attributes if name.startswith("on")]
    assert text.count("&lt;script&gt;") >= 9
    assert "polyline" in tags.elements
    assert len(re.findall(r'points="([^"]+)"', text)[0].split()) == 2  # each step once
    for words in ("resumed from step 1", "lost its machine", "0.0800 EUR", "0:01:00.000", "kept"):
        assert words in text


def test_exit_kit_a_report_of_a_job_that_was_not_evaluated_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    answers = answers_of("answers", refusal(404, "not_found", "It has no answers."))
    job = "GET /fine_tuning/jobs/ftjob-1"
    waiting = {**JOB, "gate": None, "finished_at": None, "fine_tuned_model": None, "error": None}
    answers |= {job: waiting, f"{job}/metrics": page(), f"{job}/events": page()}
    api = ScriptedApi(monkeypatch, answers)
    assert api.run("job", "report", "ftjob-1").exit_code == 0
    text = Path("ftjob-1.html").read_text(encoding="utf-8")
    for words in ("No step was recorded", "It has not begun", "not compared", "Nothing was asked"):
        assert words in text
    refused = api.run("job", "report", "ftjob-1", "--output", str(tmp_path / "no" / "job.html"))
    assert "No such file or directory" in refused.output
