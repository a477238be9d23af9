"""A node without a key store trains and scores what is encrypted, with the keys of its leases."""

import json
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.shared.guests import Guest
from tests.e2e.stories import AGENT_A

pytestmark = pytest.mark.train

KINDS: Final = {"prepared", "adapters", "checkpoints", "scores"}  # what nodes read and write
WAIT_MS_MAX: Final = 120_000  # 35 and 56 ms where nothing else ran
PROMPT: Final = "What is 3 plus 6?"


async def test_security_m3_a_node_without_a_key_store_trains_and_scores(
    home: Guest, node_folder: Path
) -> None:
    """Its data directory is one of its own, so no folder that it knows of has a key."""
    job_id = await home.submit(eval={"prompts": [PROMPT]})
    job = await home.api.ended(job_id)
    assert job["fine_tuned_model"]
    answers = await home.api.get(f"/fine_tuning/jobs/{job_id}/answers")
    assert [pair["prompt"] for pair in answers["data"]] == [PROMPT]
    variables = environment_of(home.stack.supervisor.pid(AGENT_A.name))
    root = home.stack.folders.root
    keys = [key.read_bytes() for key in (root / "keystore").glob("*.key")]
    kinds = {kind for kind in KINDS if any(sealed_of(root / "s3", kind))}
    lines = map(json.loads, (home.stack.folders.logs / "agent-a.log").read_text().splitlines())
    waits = [line for line in lines if line.get("event") == "lease.keys_opened"]
    assert len(waits) >= 2, "of the training, and of the evaluation"
    assert max(line["waited_ms"] for line in waits) < WAIT_MS_MAX, waits
    assert keys, "services have them"
    assert kinds == KINDS, "all that the node read and wrote is encrypted"
    assert variables["TUNERY_DATA_DIR"] == str(node_folder)
    assert {"TUNERY_KEYSTORE_DIR", "TUNERY_ROOTS_DIR"}.isdisjoint(variables)
    left = [file for file in node_folder.rglob("*") if file.is_file()]
    assert left, "it worked in this folder"
    assert not {"keystore", "roots"}.intersection(part for file in left for part in file.parts)
    assert not [file for file in left if file.read_bytes() in keys]


def sealed_of(folder: Path, kind: str) -> list[Path]:
    return [path for path in folder.rglob("*.sealed") if kind in path.parts]


def environment_of(pid: int | None) -> dict[str, str]:
    text = Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace")
    return dict(line.split("=", 1) for line in text.split("\0") if "=" in line)
