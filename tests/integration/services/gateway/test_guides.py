"""The guides' own lines against real services, as somebody would copy them."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.integration.services.gateway.control_plane import ROWS, admin
from tests.repo.test_documents import python_blocks
from tunery.local import Stack

RUN_S_MAX: Final = 120
MODEL: Final = "smollm2-135m-instruct"  # the guides' model; here it is the small one
FOLLOWED: Final = """
client.fine_tuning.jobs.cancel(job.id)
told = follow(client, job.id)
assert told[0] == f"Created fine-tuning job: {job.id}", told
assert told[-1] == "The job was cancelled", told
"""


@pytest.mark.parametrize("page", ["docs/reference/api.md", "docs/how-to/from-openai.md"])
async def test_the_lines_of_a_guide_run(
    running: Stack, tiny: Path, tmp_path: Path, page: str
) -> None:
    async with admin(running) as api:
        added = await api.post("/v1/bases", json={"id": MODEL, "path": str(tiny)})
        assert added.status_code == 201, added.text
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in ROWS))
    blocks = [block for name, block in python_blocks() if name == page]
    source = "\n".join(blocks) + FOLLOWED * any("def follow" in block for block in blocks)
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
