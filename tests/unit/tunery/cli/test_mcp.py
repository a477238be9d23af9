"""`tunery mcp`: which tools an assistant is offered, and what they refuse."""

import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.unit.tunery.cli.scripted_api import ScriptedApi
from tests.unit.tunery.cli.test_suggest import ANSWERS, ESTIMATE
from tunery.cli import mcp

JOB = {"model": "tiny", "training_file": "file-1"}


async def call(folder: Path, tool: str, **arguments: Any) -> tuple[bool, Any]:
    """(whether it failed, its answer or message) of one tool."""
    async with Client(mcp.server("http://api/v1", "k", folder, read_only=False)) as client:
        done = await client.call_tool(tool, arguments)
    content: Any = done.content[0]
    return bool(done.is_error), content.text if done.is_error else done.structured_content


async def test_exit_kit_reading_alone_offers_nothing_that_changes(tmp_path: Path) -> None:
    async def offered(*, read_only: bool) -> dict[str, bool]:
        async with Client(mcp.server("u", "k", tmp_path, read_only=read_only)) as client:
            tools = (await client.list_tools()).tools
        assert all(tool.description for tool in tools)
        assert not any({"api", "folder"} & {*tool.input_schema["properties"]} for tool in tools)
        return {
            tool.name: bool(tool.annotations and tool.annotations.read_only_hint) for tool in tools
        }

    everything, reading = await offered(read_only=False), await offered(read_only=True)
    assert set(everything) - set(reading) == {
        "upload_file",
        "submit_job",
        "change_job",
        "ask_model",
    }
    assert reading == {name: True for name, reads in everything.items() if reads}


@pytest.mark.parametrize("path", ["../secret.jsonl", "/etc/passwd", "link.jsonl"])
async def test_exit_kit_a_file_outside_the_folder_is_not_uploaded(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = ScriptedApi(monkeypatch, {})
    folder = tmp_path / "data"
    folder.mkdir()
    (tmp_path / "secret.jsonl").write_text("{}")
    (folder / "link.jsonl").symlink_to(tmp_path / "secret.jsonl")
    failed, message = await call(folder, "upload_file", path=path)
    assert (failed, "is outside" in message, api.requests) == (True, True, [])


async def test_exit_kit_a_job_is_submitted_at_an_agreed_price_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated call is one job."""
    priced = ESTIMATE | {"estimation_available": True}
    answers = {"POST /fine_tuning/jobs/estimate": priced, "POST /fine_tuning/jobs": {"id": "j"}}
    api = ScriptedApi(monkeypatch, answers)
    failed, message = await call(tmp_path, "submit_job", request=JOB, agreed_amount=0.39)
    assert (failed, "up to 0.40 EUR (expected: 0.20)" in message) == (True, True)
    assert api.asked == ["POST /fine_tuning/jobs/estimate"]
    for _ in range(2):
        assert await call(tmp_path, "submit_job", request=JOB, agreed_amount=0.4) == (
            False,
            {"id": "j"},
        )
    keys = [r.headers["idempotency-key"] for r in api.requests if "idempotency-key" in r.headers]
    assert (len(keys), len(set(keys))) == (2, 1)


async def test_exit_kit_a_job_without_a_price_is_not_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = ScriptedApi(monkeypatch, {"POST /fine_tuning/jobs/estimate": ESTIMATE})
    failed, message = await call(tmp_path, "submit_job", request=JOB, agreed_amount=9)
    assert (failed, "no node is there" in message, len(api.requests)) == (True, True, 1)


async def test_exit_kit_refusals_of_the_api_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ScriptedApi(monkeypatch, {})
    failed, message = await call(tmp_path, "show_job", job_id="ftjob-1")
    assert (failed, "There is no such thing." in message) == (True, True)


async def test_exit_kit_a_suggestion_is_that_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ScriptedApi(monkeypatch, ANSWERS)
    failed, suggestion = await call(tmp_path, "suggest_training", file_id="file-1", budget=1.0)
    assert (failed, suggestion["model"], suggestion["method"]) == (False, "tiny", "dpo")


def test_exit_kit_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    done = ScriptedApi(monkeypatch, {}).run("mcp")
    assert (done.exit_code, "pip install 'tunery[mcp]'" in done.output) == (1, True)
