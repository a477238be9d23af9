"""An assistant over `tunery mcp` and real services: from a file to a job that is cancelled."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx
from mcp import Client, StdioServerParameters

from tests.integration.services.gateway.control_plane import ROWS
from tunery.local.stack import Stack


async def test_exit_kit_an_assistant_goes_from_a_file_to_a_job_at_an_agreed_price(
    running: Stack, tmp_path: Path
) -> None:
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in ROWS))
    assistant = StdioServerParameters(
        command=sys.executable,
        args=["-m", "tunery.cli.main", "mcp", "--folder", str(tmp_path)],
        env={
            **os.environ,
            "OPENAI_BASE_URL": f"{running.api_url}/v1",
            "OPENAI_API_KEY": running.admin_key,
        },
    )
    async with Client(assistant) as client:

        async def call(tool: str, **arguments: Any) -> Any:
            done = await client.call_tool(tool, arguments)
            assert not done.is_error, done.content
            return done.structured_content

        file = await call("upload_file", path="rows.jsonl")
        assert file["status"] == "processed"
        suggestion = await call("suggest_training", file_id=file["id"])
        assert (suggestion["method"], suggestion["rows"]) == ("supervised", len(ROWS))
        request = suggestion["request"]
        refused = await client.call_tool("submit_job", {"request": request, "agreed_amount": 0.0})
        assert refused.is_error
        agreed = suggestion["estimate"]["amount_max_micro"] / 1e6
        job = await call("submit_job", request=request, agreed_amount=agreed)
        again = await call("submit_job", request=request, agreed_amount=agreed)
        assert again["id"] == job["id"]
        waits = await call("explain_job", job_id=job["id"])
        assert waits["queue"]["reason"]
        assert job["id"] in {each["id"] for each in (await call("list_jobs"))["jobs"]}
        assert (await call("follow_job", job_id=job["id"]))["events"]
        ended = await call("change_job", job_id=job["id"], change="cancel")
        assert ended["status"] == "cancelled"
        await call("show_spending")


async def test_exit_kit_a_key_with_the_scope_read_submits_nothing(
    running: Stack, tmp_path: Path
) -> None:
    """The rights are those of the key, whatever tools are offered."""
    headers = {"authorization": f"Bearer {running.admin_key}"}
    async with httpx.AsyncClient(base_url=running.api_url, headers=headers) as http:
        body = {"name": "assistant", "scopes": ["read"]}
        key = (await http.post("/v1/tenants/local/keys", json=body)).json()["key"]
    assistant = StdioServerParameters(
        command=sys.executable,
        args=["-m", "tunery.cli.main", "mcp", "--folder", str(tmp_path)],
        env={**os.environ, "OPENAI_BASE_URL": f"{running.api_url}/v1", "OPENAI_API_KEY": key},
    )
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROWS[0]))
    async with Client(assistant) as client:
        assert not (await client.call_tool("list_models", {})).is_error
        refused = await client.call_tool("upload_file", {"path": "rows.jsonl"})
        content: Any = refused.content[0]
        assert (refused.is_error, "scope" in content.text) == (True, True)
