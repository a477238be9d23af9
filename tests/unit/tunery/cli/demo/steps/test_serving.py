"""The steps that ask: each claim holds for good answers, and breaks with each fault.

`tests/e2e/test_demo.py` runs them with the `openai` package against a whole stack.
"""

import json
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.tunery.cli.demo.steps.test_results import held
from tests.unit.tunery.cli.demo.test_context import context
from tunery.cli.demo.context import DemoContext
from tunery.cli.demo.polling import DeadlineExceeded
from tunery.cli.demo.steps import serving
from tunery.local.errors import LocalError
from tunery.local.paths import BASE_MODEL_ID

FIRST, SECOND = "ft:smol:1", "ft:smol:2"


class Files:
    """An API with the files of a version, a second job and a deployment."""

    def __init__(self, status: str = "succeeded", **ratio: Any) -> None:
        self.status = status
        self.ratio = {"callers": 24, "second": 11, "expected_of_second": 12.0, "p_value": 0.68}
        self.ratio |= {"mismatch": False} | ratio

    async def adapter(self, _model_id: str) -> dict[str, Any]:
        return {"files": [{"name": serving.FLIPPED}]}

    async def fetch(self, _file: Any, path: Path) -> None:
        path.write_bytes(b"adapter")

    async def submit(self, body: dict[str, Any], _key: str) -> dict[str, Any]:
        assert body["training_file"] == "file-2"
        return {"id": "ftjob-2"}

    async def job(self, _job_id: str) -> dict[str, Any]:
        model = SECOND if self.status == "succeeded" else None
        return {"phase": "done", "status": self.status, "fine_tuned_model": model, "error": None}

    async def get(self, *parts: str) -> dict[str, Any]:
        assert parts == ("deployments", "ft:smol:staging")
        counts = {"share": 50.0, "callers": 12, "answers": 16, "failures": 0}
        arms = [{"model": model, **counts} for model in (FIRST, SECOND)]
        return {"versions": arms, "sample_ratio": self.ratio}


def demo_with(monkeypatch: pytest.MonkeyPatch, api: Files | None = None) -> DemoContext:
    @asynccontextmanager
    async def client(_context: DemoContext) -> Any:
        yield None

    demo = context(api)
    demo.model_id = FIRST
    monkeypatch.setattr(serving, "client", client)
    return demo


@pytest.mark.parametrize(
    ("after", "parts", "broken"),
    [
        ("Ahoy!", 3, set()),
        ("Hello.", 3, {"answers_changed_visibly"}),
        ("Ahoy!", 1, {"model_answered_through_openai_sdk"}),
    ],
)
async def test_the_new_model_answers_otherwise_and_in_parts(
    after: str, parts: int, broken: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(_client: Any, model: str, _prompt: str) -> tuple[str, int]:
        return ("Hello.", parts) if model == BASE_MODEL_ID else (after, parts)

    demo = demo_with(monkeypatch)
    monkeypatch.setattr(serving, "ask", ask)
    await serving.answers(demo)
    claims = ("answers_changed_visibly", "model_answered_through_openai_sdk")
    assert {claim for claim in claims if not held(demo, claim)} == broken


@pytest.mark.parametrize(
    ("before", "after", "broken"),
    [
        ([], [serving.FLIPPED], set()),
        ([serving.FLIPPED], [serving.FLIPPED], {"signature_verified"}),
        ([], [], {"flipped_bit_named"}),
        ([], ["lineage.json"], {"flipped_bit_named"}),
    ],
)
async def test_a_flipped_bit_is_named_and_nothing_else(
    before: list[str], after: list[str], broken: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def verified(_context: DemoContext, *words: str, codes: Any) -> str:
        assert words[:2] == ("model", "verify")
        content = (Path(words[2]) / serving.FLIPPED).read_bytes()
        different = before if content == b"adapter" else after
        return json.dumps([{"file": name, "difference": "other bytes"} for name in different])

    demo = demo_with(monkeypatch, Files())
    monkeypatch.setattr(serving, "tunery", verified)
    await serving.verify(demo)
    claims = ("signature_verified", "flipped_bit_named")
    assert {claim for claim in claims if not held(demo, claim)} == broken


@pytest.mark.parametrize(
    ("sticky", "ratio", "broken"),
    [
        (True, {}, set()),
        (False, {}, {"callers_kept_their_version"}),
        (True, {"mismatch": True}, {"sample_ratio_as_shared"}),
        (True, {"callers": 20}, {"sample_ratio_as_shared"}),
    ],
)
async def test_callers_keep_their_version_and_no_caller_is_missing(
    sticky: bool, ratio: dict[str, Any], broken: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, int] = {}

    async def version(_client: Any, name: str, user: str) -> str:
        assert name == "ft:smol:staging"
        asked[user] = asked.get(user, 0) + 1
        odd = int(user.removeprefix("user-")) % 2 == 1
        return FIRST if odd == (sticky or asked[user] == 1) else SECOND

    demo = sharing(monkeypatch, Files(**ratio))
    monkeypatch.setattr(serving, "_version", version)
    await serving.submit_second(demo)
    await serving.share(demo)
    claims = ("callers_kept_their_version", "sample_ratio_as_shared")
    assert {claim for claim in claims if not held(demo, claim)} == broken
    assert len(asked) == len(serving.USERS)


async def test_a_second_job_that_fails_ends_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    demo = sharing(monkeypatch, Files(status="failed"))
    await serving.submit_second(demo)
    with pytest.raises(DeadlineExceeded, match="the second job ended as failed"):
        await serving.share(demo)


def sharing(monkeypatch: pytest.MonkeyPatch, api: Files) -> DemoContext:
    """A demo whose second file is accepted, and whose versions share a stage."""

    async def uploaded(_context: DemoContext, path: Path) -> dict[str, Any]:
        assert len(path.read_text("utf-8").splitlines()) == serving.SECOND_ROWS
        return {"id": "file-2"}

    async def deployed(_context: DemoContext, *words: str) -> str:
        assert words[:3] == ("deploy", "start", FIRST)
        assert words[words.index("--with") + 1] == SECOND
        return json.dumps({"id": "ft:smol:staging"})

    monkeypatch.setattr(serving, "upload_and_validate", uploaded)
    monkeypatch.setattr(serving, "tunery", deployed)
    return demo_with(monkeypatch, api)


@pytest.mark.long  # imports openai
async def test_an_engine_that_does_not_answer_ends_the_demo_in_words() -> None:
    from openai import OpenAIError

    demo = context()
    demo.stack = SimpleNamespace(  # type: ignore[assignment]  # it only needs its address
        api_url="http://127.0.0.1:9", admin_key="key"
    )
    with pytest.raises(LocalError, match="v1: it is away"):
        async with serving.client(demo):
            raise OpenAIError("it is away")
