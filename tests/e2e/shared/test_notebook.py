"""The notebook of the tutorial runs from its first cell to its last against a whole stack."""

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.bases import tiny_base
from tests.e2e.shared.guests import Guest
from tests.e2e.stories import TINY
from tests.notebooks import code_cells

pytestmark = pytest.mark.timeout(900)

NOTEBOOK: Final = Path(__file__).parents[3] / "examples" / "own_data.ipynb"
RUN_S_MAX: Final = 600


async def test_first_hour_s14_own_data_becomes_a_model_that_answers(
    home: Guest, tmp_path: Path
) -> None:
    base = {"id": TINY, "path": str(tiny_base().dir), "shared": True}
    await home.operator.post("/bases", base)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "\n".join(code_cells(NOTEBOOK))),
        cwd=tmp_path,
        env={**os.environ, **home.variables, "TUNERY_MODEL": TINY, "HF_HUB_OFFLINE": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await asyncio.wait_for(process.communicate(), RUN_S_MAX)
    assert process.returncode == 0, errors.decode()
    printed = out.decode()
    assert "The job has successfully completed" in printed
    assert "loss on your rows:" in printed
    assert f"\n{TINY} | " in printed
    twice = re.search(r"\nft:\S+ \| (.*)\n\1\n", printed, re.DOTALL)
    assert twice, f"the streamed answer is not the one in one piece: {printed}"
    assert (tmp_path / "helpdesk" / "base" / "config.json").is_file()
