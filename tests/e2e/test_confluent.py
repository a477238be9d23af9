"""One life of a job with every service on the other client of Kafka, confluent-kafka.

Servers, services, the agent and its processes are real; what trains is a stand-in.
"""

import json
from pathlib import Path
from typing import Final

import pytest

from tests.e2e import stand_in_agent
from tests.e2e.stand_in_process import STORIES
from tests.e2e.stories import replayed, running_stack
from tunery.local.stack import SERVICES, ServiceSpec

pytestmark = pytest.mark.timeout(900)

DRIVER: Final = {"TUNERY_KAFKA_DRIVER": "confluent"}
AGENT: Final = ServiceSpec(
    "agent-stand-in",
    module=stand_in_agent.__name__,
    env={"TUNERY_NODE_ID": "only", "TUNERY_NODE_SLOTS": "1", **DRIVER},
    stop_ms_max=60_000,
)


def uses_librdkafka(pid: int) -> bool:
    return "librdkafka" in Path(f"/proc/{pid}/maps").read_text(encoding="ascii")


@pytest.mark.soak  # test_kafka.py has the suite of buses over this driver, too
async def test_a_job_is_trained_evaluated_and_billed_over_confluent_kafka() -> None:
    everyone = dict.fromkeys(SERVICES, DRIVER)
    async with running_stack((AGENT,), **everyone) as home:
        submitted = await home.submit(seed=STORIES.index("unpublished"))
        await home.api.job(submitted, lambda job: job["phase"] == "done")
        cancelled = await home.submit(seed=STORIES.index("endless"))
        await home.api.post(f"/fine_tuning/jobs/{cancelled}/cancel")
        await home.api.job(cancelled, lambda job: job["phase"] == "done")
        for name in ("gateway", "scheduler", "billing", AGENT.name):
            record = home.stack.folders.run / f"{name}.pid"
            assert uses_librdkafka(json.loads(record.read_text())["pid"]), name
        report = await replayed(home.stack.folders.root)
        assert report["equal"], report
