"""`tunery usage`: what is asked for, and sums of days."""

import json
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from tunery.cli.main import main
from tunery.client import Api

DAY = 86_400
NOVEMBER = 1_793_491_200  # 2026-11-01


def result(model: str, net: int) -> dict[str, Any]:
    sums = {"used_gpu_ms": net, "billable_gpu_ms": net, "credited_gpu_ms": 0, "net_gpu_ms": net}
    return {"object": "usage.result", "model": model, "job_id": None, **sums}


PAGES = [
    {
        "data": [{"start_time": NOVEMBER, "results": [result("a", 1_000), result("b", 500)]}],
        "has_more": True,
        "next_page": "page_2",
    },
    {
        "data": [{"start_time": NOVEMBER + DAY, "results": [result("a", 2_000)]}],
        "has_more": False,
        "next_page": None,
    },
]


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[Result, list[httpx.Request]]:
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=PAGES[len(seen) - 1])

    def connected(url: str, key: str) -> Api:
        return Api(url, key, transport=httpx.MockTransport(handle))

    monkeypatch.setattr("tunery.client.Api", connected)
    environ = {"OPENAI_BASE_URL": "http://api/v1", "OPENAI_API_KEY": "k"}
    return CliRunner().invoke(main, ["usage", *words], env=environ), seen


def test_tokens_of_answers_are_asked_for_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    sums = {"input_tokens": 1_200, "input_cached_tokens": 7, "output_tokens": 30}
    answers = {"model": "tiny", "num_model_requests": 2, **sums, "engine_ms": 1_500}
    page = {"data": [{"start_time": NOVEMBER, "results": [answers, answers]}], "has_more": False}
    monkeypatch.setitem(globals(), "PAGES", [page])
    done, seen = run(monkeypatch, "--answers", "--by", "model")
    assert done.exit_code == 0, done.output
    assert seen[0].url.path == "/v1/usage/completions"
    rows = [line.split() for line in done.output.splitlines()]
    assert ["tiny", "4", "2,400", "14", "60", "0:00:03.000"] in rows


def test_tokens_of_sessions_are_asked_for_by_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = {"train_tokens": 1_200, "prefill_tokens": 7, "sample_tokens": 30}
    session = {"session_id": "session-1", "num_requests": 2, **tokens}
    page = {"data": [{"start_time": NOVEMBER, "results": [session, session]}], "has_more": False}
    monkeypatch.setitem(globals(), "PAGES", [page])
    done, seen = run(monkeypatch, "--sessions", "--by", "session")
    assert done.exit_code == 0, done.output
    assert seen[0].url.path == "/v1/usage/sessions"
    rows = [line.split() for line in done.output.splitlines()]
    assert rows[0] == ["session", "requests", "trained", "read", "sampled"]
    assert ["session-1", "4", "2,400", "14", "60"] in rows


def test_a_month_is_asked_for_page_by_page_and_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    done, seen = run(monkeypatch, "--period", "2026-11", "--by", "model", "--tenant", "acme")
    assert done.exit_code == 0, done.output
    assert [request.url.params.get("page") for request in seen] == [None, "page_2"]
    query = seen[0].url.params
    assert (query["start_time"], query["end_time"]) == (str(NOVEMBER), str(NOVEMBER + 30 * DAY))
    assert (query["group_by"], query["tenant"]) == ("model", "acme")
    rows = [line.split() for line in done.output.splitlines()]
    assert ["a", "0:00:03.000", "0:00:03.000", "0:00:00.000", "0:00:03.000"] in rows


def test_days_stay_apart_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    done, _ = run(monkeypatch, "--by", "day")
    assert [line.split()[0] for line in done.output.splitlines()[1:]] == [
        "2026-11-01",
        "2026-11-01",
        "2026-11-02",
    ]


def test_json_is_the_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    done, _ = run(monkeypatch, "--json")
    assert json.loads(done.output) == [*PAGES[0]["data"], *PAGES[1]["data"]]  # type: ignore[misc]  # lists


@pytest.mark.parametrize("month", ["november", "2026-13", "9999-12"])
def test_no_month_is_a_usage_error(month: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done, seen = run(monkeypatch, "--period", month)
    assert (done.exit_code, seen) == (2, [])
