"""A job whose ranks have a share of all weights each, on the real stack: one of them is killed.

It ends with the bytes of a job that nothing happened to.
"""

import os
import signal
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.e2e.stories import AGENT_A, Json, RunningStack, replayed, running_stack, training
from tests.e2e.test_confinement import assert_billed_by_slots, ranks_of
from tunery.local.stack import ServiceSpec

pytestmark = [
    pytest.mark.train,
    pytest.mark.timeout(900),
    pytest.mark.soak,  # test_gang_live loses ranks on a whole stack, test_engines with such weights
]

SLOTS: Final = 2
AGENT: Final = ServiceSpec(
    AGENT_A.name, module=AGENT_A.module, env={**AGENT_A.env, "TUNERY_NODE_SLOTS": str(SLOTS)}
)
#: a row in a step for each rank
METHOD: Final = {
    "type": "supervised",
    "supervised": {"hyperparameters": {"n_epochs": 5, "batch_size": SLOTS}},
}
WHOLE: Final = {"adaptation": "full", "slots": SLOTS, "threads": 1, "checkpoint_every_steps": 10}


def asked(home: RunningStack, **changes: Any) -> Json:
    return home.request(method=METHOD, lora={}, training={**WHOLE, **changes})


async def test_weights_in_shares_survive_the_loss_of_a_rank_to_the_same_bytes() -> None:
    async with running_stack((AGENT,)) as home:
        await refuse(home, asked(home, shard_weights=True, slots=1), "shard_weights")

        shared = asked(home, shard_weights=True)
        plan = await home.api.post("/fine_tuning/jobs/plan", shared)
        settings = {each["name"]: each["value"] for each in plan["settings"]}
        assert settings["shard_weights"] is True
        assert (settings["accumulation"], plan["estimate"]["slots"]) == (SLOTS, SLOTS)

        job_id = await home.api.submit(shared)
        newest = await home.with_checkpoint(job_id)
        first = ranks_of(home)
        assert len(first) == SLOTS
        os.kill(first[1], signal.SIGKILL)
        resumed = await home.api.job(job_id, lambda job: job["attempt"] == 2 and training(job))
        assert not any(Path(f"/proc/{pid}").exists() for pid in first.values())
        assert resumed["progress"]["resumed_from_step"] >= newest["step_number"] > 0
        said = "\n".join(await home.api.messages(job_id))
        assert f"rank 1 of {SLOTS} (process {first[1]}) was killed by SIGKILL after step" in said
        job = await home.api.ended(job_id)
        assert job["hyperparameters"]["shard_weights"] is True
        assert job["attempt"] == 3, "two to train, one to evaluate"
        bill = await home.bill(job_id)
        assert bill["credited_gpu_ms"] > 0
        assert_billed_by_slots(home, job_id, bill, {1: SLOTS, 2: SLOTS, 3: 1})

        undisturbed = await home.api.submit(asked(home, shard_weights=True))
        await home.api.ended(undisturbed)
        weights = await home.published(job_id)
        assert "model.safetensors" in weights
        assert weights == await home.published(undisturbed)
        assert (await replayed(home.stack.folders.root))["equal"]


async def refuse(home: RunningStack, body: Json, knob: str) -> None:
    """Assert that a job is refused, by its plan as by its submission, with the setting."""
    for path in ("/fine_tuning/jobs/plan", "/fine_tuning/jobs"):
        refused = await home.api.call("POST", path, json=body)
        assert refused.status_code == httpx.codes.BAD_REQUEST, refused.text
        error = refused.json()["error"]
        assert error["param"] == f"training.{knob}"
