"""Audit records through the real gateway, Kafka and PostgreSQL: read, exported, verified."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx

from schemas.topics import AUDIT
from tests.commands import run_tunery
from tests.integration.services.gateway.control_plane import ROWS, admin
from tests.integration.services.gateway.test_cli import tunery
from tests.stacks import temporary_data_dir
from tunery.cli.journal.connection import open_log
from tunery.local.stack import Stack, stack

SETTLE_S_MAX = 180
TENANT = "audited"


async def on_log(plane: Stack, *words: str, code: int = 0) -> str:
    """Output of `tunery audit …` about the log of this stack."""
    out, errors = await run_tunery(plane.folders.root, "audit", *words, code=code)
    return (out or errors).decode()


async def noted(api: httpx.AsyncClient, minimum: int, **query: str) -> list[dict[str, Any]]:
    """Entries with these parameters, oldest first, once there are at least `minimum`."""
    async with asyncio.timeout(SETTLE_S_MAX):
        while True:
            answer = await api.get("/v1/audit", params={**query, "order": "asc"})
            assert answer.status_code == 200, answer.text
            entries: list[dict[str, Any]] = answer.json()["data"]
            if len(entries) >= minimum:
                return entries
            await asyncio.sleep(0.1)


async def test_security_m7_who_did_what_is_on_the_log_and_cannot_be_changed_unseen(
    running: Stack, tmp_path: Path
) -> None:
    async with admin(running) as api:
        assert (await api.post("/v1/tenants", json={"id": TENANT})).status_code == 201
        created = (await api.post(f"/v1/tenants/{TENANT}/keys", json={"name": "k"})).json()
        headers = {"authorization": f"Bearer {created['key']}"}
        async with httpx.AsyncClient(base_url=running.api_url, headers=headers) as client:
            rows = "\n".join(json.dumps(row) for row in ROWS).encode()
            sent = await client.post(
                "/v1/files", data={"purpose": "fine-tune"}, files={"file": ("rows.jsonl", rows)}
            )
            file = sent.json()["id"]
            content = await client.get(f"/v1/files/{file}/content")
            assert content.content == rows
            assert (await client.get("/v1/tenants")).status_code == 403
            used = (await client.get("/v1/keys/current")).json()
            assert (await client.delete("/v1/keys/current")).status_code == 200
            assert (await client.get(f"/v1/files/{file}/content")).status_code == 401
        entries = await noted(api, 8, tenant=TENANT)
        kinds = [(entry["kind"], entry["route"], entry["status"]) for entry in entries]
        assert [kind for kind in kinds if kind[0] != "use"] == [
            ("operator", "/v1/tenants", 201),
            ("operator", "/v1/tenants/{tenant}/keys", 201),
            ("change", "/v1/files", 200),
            ("content", "/v1/files/{file_id}/content", 200),
            ("refusal", "/v1/tenants", 403),
            ("change", "/v1/keys/{key_id}", 200),
            ("refusal", "/v1/files/{file_id}/content", 401),
        ]
        by_tenant = [entry for entry in entries if entry["kind"] != "operator"]
        assert {(entry["key_id"], entry["address"]) for entry in by_tenant} == {
            (used["id"], "127.0.0.1")
        }
        (shown,) = (await api.get(f"/v1/tenants/{TENANT}/keys")).json()["data"]
        assert shown["last_used_at"] >= entries[0]["created_at"]
    listed = await tunery(running, "audit", "list", "--object", file, "--json")
    assert [json.loads(line)["kind"] for line in listed.splitlines()] == ["change", "content"]
    await _verify(running, tmp_path)


async def _verify(running: Stack, tmp_path: Path) -> None:
    """Export and verify; then a record that no gateway wrote breaks the chain."""
    export = tmp_path / "audit.jsonl"
    written = json.loads(await on_log(running, "export", str(export), "--json"))
    assert written["entries"] >= 8
    assert written["lost"] == 0
    text = export.read_text()
    assert TENANT in text
    assert ROWS[0]["messages"][0]["content"] not in text
    await on_log(running, "verify", "--against", str(export))
    changed = tmp_path / "changed.jsonl"
    changed.write_text(text.replace("127.0.0.1", "127.0.0.9", 1))
    assert "broken" in await on_log(running, "verify", str(changed), code=1)
    assert "is not the one of" in await on_log(running, "verify", "--against", str(changed), code=1)
    forged = text.splitlines()[0].replace("127.0.0.1", "10.0.0.66")
    async with open_log(running.folders) as log:
        await log.send(AUDIT.name, b"forged", forged.encode(), 0)
    assert "broken" in await on_log(running, "verify", code=1)


async def test_security_m7_reads_go_on_while_kafka_is_away_and_are_noted_later() -> None:
    with temporary_data_dir() as folder:
        async with stack(folder, services=("gateway", "billing"), environ={}) as own:
            async with admin(own) as api:
                assert (await api.get("/v1/tenants")).status_code == 200
                await noted(api, 1)
                own.pause("kafka")
                try:
                    for path in ("/v1/prices", "/v1/nodes"):
                        answered = await api.get(path, timeout=60)
                        assert answered.status_code == 200, (path, answered.text)
                finally:
                    own.resume("kafka")
                entries = await noted(api, 4, kind="operator")
                routes = {entry["route"] for entry in entries}
                assert routes == {"/v1/tenants", "/v1/audit", "/v1/prices", "/v1/nodes"}
            verified = json.loads(await on_log(own, "verify", "--json"))
            assert verified["lost"] == 0
