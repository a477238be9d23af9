"""The Python code of two documents runs against real services, exactly as it is printed."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.integration.services.gateway.control_plane import ROWS, admin
from tests.repo.test_documents import python_blocks
from tunery.local.stack import Stack

RUN_S_MAX: Final = 240
MODEL: Final = "smollm2-135m-instruct"  # in the documents; a tiny one has its name here
CHECK_FOLLOWED_EVENTS: Final = """
client.fine_tuning.jobs.cancel(job.id)
messages = follow(client, job.id)
assert messages[0] == f"Created fine-tuning job: {job.id}", messages
assert messages[-1] == "The job was cancelled", messages
"""


@pytest.mark.parametrize("page", ["docs/reference/api.md", "docs/how-to/from-openai.md"])
async def test_python_code_in_documents_runs(
    running: Stack, tiny: Path, tmp_path: Path, page: str
) -> None:
    async with admin(running) as api:
        added = await api.post("/v1/bases", json={"id": MODEL, "path": str(tiny)})
        assert added.status_code == 201, added.text
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in ROWS))
    blocks = [block for name, block in python_blocks() if name == page]
    source = "\n".join(blocks) + CHECK_FOLLOWED_EVENTS * any(
        "def follow" in block for block in blocks
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", source),
        cwd=tmp_path,
        env={
            "OPENAI_BASE_URL": f"{running.api_url}/v1",
            "OPENAI_API_KEY": running.admin_key,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await asyncio.wait_for(process.communicate(), RUN_S_MAX)
    assert process.returncode == 0, errors.decode()
    assert out
