"""`tunery prices`: what each command asks the API for, and how it says what is wrong."""

import json
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from tunery.cli.main import main
from tunery.client import Api

BOOK = {
    "version": "2026-12",
    "currency": "EUR",
    "effective_from": "2026-12-01",
    "gpu_hour_micro": {"standard": 2_600_000, "free": 0},
    "token_micro_per_million": 0,
    "storage_micro_per_gb_month": 20_000,
    "answers": {
        "prompt_micro_per_million": 200_000,
        "cached_micro_per_million": 50_000,
        "completion_micro_per_million": 600_000,
    },
    "rates": [
        {
            "lane": "standard",
            "gpu_hour_micro": 900_000,
            "role": "eval",
            "device": None,
            "spot": True,
            "tiers": [{"above": 1_000, "unit_micro": 800_000}],
        }
    ],
}
ENTRY = {"id": "2026-12", "in_force": False, "is_default": False, "book": BOOK}


def run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[Result, list[httpx.Request]]:
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        listed = {"data": [ENTRY], "has_more": False, "last_id": "2026-12"}
        return httpx.Response(
            200,
            json=listed if request.url.path == "/v1/prices" and request.method == "GET" else ENTRY,
        )

    def connected(url: str, key: str) -> Api:
        return Api(url, key, transport=httpx.MockTransport(handle))

    monkeypatch.setattr("tunery.client.Api", connected)
    environ = {"OPENAI_BASE_URL": "http://api/v1", "OPENAI_API_KEY": "k"}
    return CliRunner().invoke(main, ["prices", *words], env=environ), seen


def test_money_b3_the_bytes_of_the_file_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "2026-12.json"
    file.write_text(json.dumps(BOOK, indent=1))
    done, (request,) = run(["import", str(file)], monkeypatch)
    assert (done.exit_code, request.method, request.content) == (0, "POST", file.read_bytes())
    assert "free 0.00, standard 2.60" in done.output
    assert "million tokens written" in done.output
    assert "standard, eval, spot" in done.output
    assert "0.90, 0.80 above 1,000" in done.output
    assert "tunery tenant plan TENANT --prices 2026-12" in done.output


def test_money_b3_a_file_that_is_not_json_is_named_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "2026-12.json"
    file.write_text('{\n "version": 2026-12\n}')
    done, seen = run(["import", str(file)], monkeypatch)
    assert (done.exit_code, seen) == (1, [])
    assert "2026-12.json is not JSON" in done.output
    assert "line 2" in done.output


def test_books_are_listed_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    done, (request,) = run(["list"], monkeypatch)
    assert (done.exit_code, request.url.path) == (0, "/v1/prices")
    assert "2026-12-01" in done.output
    done, (request,) = run(["show", "2026-12", "--json"], monkeypatch)
    assert (json.loads(done.output), request.url.path) == (ENTRY, "/v1/prices/2026-12")
