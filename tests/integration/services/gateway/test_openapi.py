"""Schemathesis sends valid and invalid requests for every operation: none may answer 5xx."""

import asyncio
import json
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from tests.environments import environment
from tests.integration.services.gateway.control_plane import ROWS, admin
from tests.repo.openapi import document
from tunery.local.stack import Stack

pytestmark = pytest.mark.security

VERSION: Final = "4.32.5"
FUZZ_S_MAX: Final = 60
RUN_S_MAX: Final = 240
EXAMPLES_MAX: Final = 8
#: answer 503 without an engine, which this stack has not; `tests/e2e/test_chat.py` asks a real one,
#: and `tests/integration/services/engine/test_drivers.py` for embeddings
WITHOUT_ENGINE: Final = (
    *("/v1/chat/completions", "/v1/completions", "/v1/responses"),
    "/v1/embeddings",
)
#: takes no JSON; `tests/e2e/shared/test_tinker.py` sends it what the SDK does
OF_PROTOBUF: Final = ("/api/v1/forward_backward",)
LEFT_OUT: Final = (*WITHOUT_ENGINE, *OF_PROTOBUF)
#: so high that no generated request is refused because of a plan's limit
LIMITS: Final = {"soft_gpu_ms": 10**12, "hard_gpu_ms": 10**12, "concurrency": 10_000}


async def test_no_generated_request_causes_a_server_error(running: Stack, tmp_path: Path) -> None:
    programs = await asyncio.to_thread(environment, "schemathesis", VERSION)
    ids, key = await example_ids(running)
    config = tmp_path / "schemathesis.toml"
    config.write_text("[parameters]\n" + "".join(f'"path.{k}" = "{v}"\n' for k, v in ids.items()))
    api = tmp_path / "openapi.json"
    api.write_text(document(), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        *(str(programs / "st"), "--config-file", str(config), "run", str(api)),
        *("--url", running.api_url, "--header", f"Authorization: Bearer {key}"),
        *("--checks", "not_a_server_error", "--phases", "coverage,fuzzing", "--seed", "1"),
        *("--max-examples", str(EXAMPLES_MAX), "--max-time", str(FUZZ_S_MAX)),
        *(word for path in LEFT_OUT for word in ("--exclude-path", path)),
        *(
            "--workers",
            "1",
            "--no-color",
            "--warnings",
            "off",
        ),  # `ast` of Python 3.11 fails in threads
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await asyncio.wait_for(process.communicate(), RUN_S_MAX)
    said = out.decode()
    assert process.returncode == 0, said
    assert f"Tested: {count_operations() - len(LEFT_OUT)}" in said, said


async def example_ids(running: Stack) -> tuple[dict[str, str], str]:
    """Ids of a tenant's file, job, upload, endpoint and key by path parameter; and an API key."""
    async with admin(running) as api:
        name = f"fuzzed-{uuid4().hex[:8]}"  # a second try has another one
        tenant = {"id": name, "plan": "premium", "limits": LIMITS}
        assert (await api.post("/v1/tenants", json=tenant)).status_code == 201
        asked = {"scopes": ["read", "write"], "requests_per_minute": 1_000_000}
        spare = await create(api, f"tenants/{name}/keys", json={})
        fuzzing_key = (await api.post(f"/v1/tenants/{name}/keys", json=asked)).json()
        api.headers["authorization"] = f"Bearer {fuzzing_key['key']}"
        body = "\n".join(json.dumps(row) for row in ROWS)
        file = await create(
            api, "files", data={"purpose": "fine-tune"}, files={"file": ("rows.jsonl", body)}
        )
        job = await create(api, "fine_tuning/jobs", json={"model": "tiny", "training_file": file})
        declared = {"bytes": 5, "filename": "a", "mime_type": "b", "purpose": "fine-tune"}
        upload = await create(api, "uploads", json=declared)
        # the notifier refuses a private address without calling it
        unreachable = {"url": "https://127.0.0.1:9/hook"}
        endpoint = await create(api, "webhook_endpoints", json=unreachable)
    ids = {"file_id": file, "job_id": job, "upload_id": upload, "endpoint_id": endpoint}
    return ids | {"key_id": spare}, str(fuzzing_key["key"])


async def create(api: Any, path: str, **body: Any) -> str:
    answer = await api.post(f"/v1/{path}", **body)
    assert answer.is_success, answer.text
    return str(answer.json()["id"])


def count_operations() -> int:
    """The number of operations in the OpenAPI document."""
    paths = json.loads(document())["paths"]
    return sum(len(item) for item in paths.values())
