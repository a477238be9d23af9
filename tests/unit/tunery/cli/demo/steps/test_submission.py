"""The steps before training: a claim holds only when the API's answers show it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tunery.cli.demo.test_context import context
from tunery.cli.demo.context import EXAMPLES, DemoContext
from tunery.cli.demo.steps import submission
from tunery.local.paths import BASE_MODEL_ID

PLANTED: dict[str, str] = json.loads((EXAMPLES / "broken.expected.json").read_text("utf-8"))
ESTIMATE: dict[str, Any] = {
    "trained_tokens": 10,
    "steps": 3,
    "memory_bytes": 10**9,
    "train_gpu_ms": 60_000,
    "eval_gpu_ms": 0,
    "amount_micro": 5,
    "amount_max_micro": 6,
    "currency": "EUR",
}


class Answers:
    """An API that answers as it is told, and remembers what it was asked.

    validations: reports of a file, one for each question; the last one is repeated
    job_ids: of the submissions, in order
    """

    def __init__(
        self,
        validations: tuple[dict[str, Any], ...] = (),
        estimate: dict[str, Any] | None = None,
        job_ids: tuple[str, ...] = (),
    ) -> None:
        self.validations, self.asked_estimate = list(validations), estimate or ESTIMATE
        self.job_ids, self.keys = list(job_ids), list[str]()
        self.uploaded: list[Path] = []
        self.bodies: list[dict[str, Any]] = []
        self.endpoints: list[dict[str, Any]] = []

    async def upload(self, path: Path) -> dict[str, Any]:
        self.uploaded.append(path)
        return {"id": "file-1"}

    async def validation(self, file_id: str) -> dict[str, Any]:
        assert file_id == "file-1"
        return self.validations.pop(0) if len(self.validations) > 1 else self.validations[0]

    async def estimate(self, body: dict[str, Any]) -> dict[str, Any]:
        self.bodies.append(body)
        return self.asked_estimate

    async def create_endpoint(self, body: dict[str, Any]) -> dict[str, Any]:
        self.endpoints.append(body)
        return {"signing_secret": "whsec_1"}

    async def submit(self, body: dict[str, Any], key: str) -> dict[str, Any]:
        self.bodies.append(body)
        self.keys.append(key)
        return {"id": self.job_ids[len(self.keys) - 1], "status": "queued"}

    async def jobs(self) -> Any:
        for job_id in sorted(set(self.job_ids)):
            yield {"id": job_id}


def errors_of(planted: dict[str, str]) -> list[dict[str, Any]]:
    return [
        {"row": int(row) if row.isdigit() else None, "code": code, "hint": "", "message": "wrong"}
        for row, code in planted.items()
    ]


def rejected(planted: dict[str, str], *, accepted: bool = False) -> dict[str, Any]:
    report = {"errors": errors_of(planted)}
    return {"id": "file-1", "status": "done", "accepted": accepted, "report": report}


def accepted(**changes: Any) -> dict[str, Any]:
    counts = [{"base_id": BASE_MODEL_ID, "tokens": 900}]
    return {
        "id": "file-1",
        "status": "done",
        "accepted": True,
        "rows": 20,
        "dialect": "chat",
        "warnings": 0,
        "tokens": counts,
    } | changes


def held(demo: DemoContext, claim: str) -> bool:
    return demo.result.held[claim]


async def test_every_planted_error_must_be_reported_by_its_row() -> None:
    api = Answers((rejected(PLANTED),))
    demo = context(api)
    await submission.bad_file(demo)
    assert held(demo, "every_planted_error_named")
    assert api.uploaded == [EXAMPLES / "broken.jsonl"]
    assert len(PLANTED) > 1


@pytest.mark.parametrize("mistake", ["one is missing", "another row", "accepted"])
async def test_a_report_with_a_mistake_breaks_the_claim(mistake: str) -> None:
    (row, code), *others = PLANTED.items()
    reports = {
        "one is missing": rejected(dict(others)),
        "another row": rejected({**dict(others), f"{row}0": code}),
        "accepted": rejected(PLANTED, accepted=True),
    }
    demo = context(Answers((reports[mistake],)))
    await submission.bad_file(demo)
    assert not held(demo, "every_planted_error_named")


async def test_a_good_file_is_counted_with_the_tokenizer_of_the_base(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tunery.cli.demo.polling.POLL_S", 0.001)
    pending = {"id": "file-1", "status": "running"}
    demo = context(Answers((pending, pending, accepted())), data=Path("mine.jsonl"))
    await submission.good_file(demo)
    assert held(demo, "good_file_accepted")
    assert demo.file_id == "file-1"


@pytest.mark.parametrize(
    "changes", [{"accepted": False}, {"tokens": []}, {"tokens": [{"base_id": "x", "tokens": 9}]}]
)
async def test_a_file_that_is_refused_or_not_counted_breaks_the_claim(
    changes: dict[str, Any],
) -> None:
    demo = context(Answers((accepted(**changes),)))
    await submission.good_file(demo)
    assert not held(demo, "good_file_accepted")


@pytest.mark.parametrize(
    ("changes", "holds"),
    [
        ({}, True),
        ({"amount_max_micro": 5}, True),
        ({"amount_max_micro": 4}, False),
        ({"amount_micro": 0}, False),
        ({"steps": 0}, False),
    ],
)
async def test_an_estimate_has_a_price_below_its_limit(
    changes: dict[str, Any], holds: bool
) -> None:
    demo = context(Answers(estimate=ESTIMATE | changes))
    demo.file_id = "file-1"
    await submission.estimate(demo)
    assert held(demo, "estimate_given_before_launch") is holds
    assert demo.estimate == ESTIMATE | changes


@pytest.mark.parametrize(
    ("job_ids", "holds"), [(("a", "a"), True), (("a", "b"), False), (("a", "a", "b"), False)]
)
async def test_two_submissions_with_one_key_are_one_job(
    job_ids: tuple[str, ...], holds: bool
) -> None:
    api = Answers(job_ids=job_ids)
    demo = context(api)
    demo.file_id = "file-1"
    await submission.submit(demo)
    assert held(demo, "two_submissions_one_job") is holds
    assert (demo.job_id, demo.webhook_secret) == ("a", "whsec_1")
    assert len(set(api.keys)) == 1
    assert api.bodies[0] == api.bodies[1] == submission.request(demo)
    assert api.endpoints == [{"name": "demo", "url": demo.receiver.url}]
    assert api.bodies[0]["training_file"] == "file-1"
