"""A training whose ranks are on two nodes, and what goes wrong with any of them.

Nothing here is a stand-in. The job goes on from its checkpoint each time, on what nodes are left.
"""

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.stories import Json, RunningStack, replayed, running_stack, training
from tunery.local import processes
from tunery.local.stack import ServiceSpec

pytestmark = [pytest.mark.train, pytest.mark.timeout(600)]

NODES: Final = ("a", "b", "c")
SLOTS_OF_NODE, SLOTS = 2, 3
RANK: Final = "tunery.ml.rank_processes"
METHOD: Final = {
    "type": "supervised",
    "supervised": {"hyperparameters": {"n_epochs": 24, "batch_size": SLOTS}},
}


def agent_of(node: str) -> str:
    return f"agent-{node}"


AGENTS: Final = tuple(
    ServiceSpec(
        agent_of(node),
        module="services.trainer",
        env={"TUNERY_NODE_ID": node, "TUNERY_NODE_SLOTS": str(SLOTS_OF_NODE)},
    )
    for node in NODES
)


async def test_a_gang_live_survives_the_loss_of_a_rank_an_agent_and_a_node() -> None:
    async with running_stack(AGENTS) as home:
        asked = home.request(method=METHOD, training={"slots": SLOTS, "threads": 1})
        plan = await home.api.post("/fine_tuning/jobs/plan", asked)
        assert plan["estimate"]["slots"] == SLOTS
        most = len(NODES) * SLOTS_OF_NODE
        too_many = asked | {"training": asked["training"] | {"slots": most + 1}}
        refused = await home.api.call("POST", "/fine_tuning/jobs/plan", json=too_many)
        assert f"together have {most} for it; it is {most + 1}" in refused.text

        job_id = await home.api.submit(asked)
        newest = await home.with_checkpoint(job_id)
        first, second = members(home)
        assert [len(ranks) for ranks in (first, second)] == [SLOTS_OF_NODE, SLOTS - SLOTS_OF_NODE]
        assert sorted({**first, **second}) == list(range(SLOTS)), "numbered over both nodes"

        # 1. One rank on the second node.
        os.kill(second[SLOTS - 1], signal.SIGKILL)
        resumed = await resumed_after(home, job_id, 1)
        assert resumed["progress"]["resumed_from_step"] >= newest["step_number"]
        killed = f"rank {SLOTS - 1} of {SLOTS} (process {second[SLOTS - 1]}) was killed by SIGKILL"
        said = "\n".join(await home.api.messages(job_id))
        assert killed in said, said
        assert not any(alive(pid) for pid in (*first.values(), *second.values()))

        # 2. The agent of the second node, whose processes the next agent finds and kills.
        nodes = nodes_of(home, job_id, resumed["attempt"])
        before = [pid for ranks in members(home) for pid in ranks.values()]
        assert len(home.stack.kill(agent_of(nodes[1]))) == 1
        resumed = await resumed_after(home, job_id, resumed["attempt"])
        assert not any(alive(pid) for pid in before)

        # 3. The first node, with all that runs on it; it does not come back.
        nodes = nodes_of(home, job_id, resumed["attempt"])
        home.stack.kill(agent_of(nodes[0]), tree=True, restart=False)
        resumed = await resumed_after(home, job_id, resumed["attempt"])
        assert nodes[0] not in nodes_of(home, job_id, resumed["attempt"])

        await home.api.ended(job_id)
        bill = await home.bill(job_id)
        assert bill["credited_gpu_ms"] > 0
        used = Counter[int]()
        for line in bill["lines"]:
            used[line["attempt"]] += line["used_gpu_ms"] if line["kind"] == "usage" else 0
        elapsed = elapsed_ms(home, job_id)
        reported = (1, resumed["attempt"])  # of the others a node was lost with its clock
        for at in reported:
            assert used[at] in {SLOTS * each for each in elapsed[at]}, (used, elapsed)
        assert (await replayed(home.stack.folders.root))["equal"]


async def resumed_after(home: RunningStack, job_id: str, attempt: int) -> Json:
    """The job once a later attempt trains. One may have been granted to a node that just died."""
    return await home.api.job(job_id, lambda job: job["attempt"] > attempt and training(job))


def members(home: RunningStack) -> list[dict[int, int]]:
    """Process ids of the ranks of each node by their numbers, the first node first."""
    ranks = [ranks_of(home, node) for node in NODES]
    return sorted((each for each in ranks if each), key=min)


def ranks_of(home: RunningStack, node: str) -> dict[int, int]:
    agent = home.stack.supervisor.pid(agent_of(node))
    below = [] if agent is None else processes.descendants(agent)
    words = {pid: Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in below}
    return {int(said[said.index(RANK) + 2]): pid for pid, said in words.items() if RANK in said}


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def log_entries(home: RunningStack, job_id: str, event: str) -> list[tuple[str, Json]]:
    """What agents logged of a job, with their nodes."""
    return [
        (node, json.loads(line))
        for node in NODES
        for line in (home.stack.folders.logs / f"{agent_of(node)}.log").read_text().splitlines()
        if f'"{event}"' in line and job_id in line
    ]


def nodes_of(home: RunningStack, job_id: str, attempt: int) -> list[str]:
    """Nodes on which an attempt started, the first member first."""
    started = log_entries(home, job_id, "attempt.process_started")
    nodes = [node for node, entry in started if entry["attempt"] == attempt]
    ranks = {node: min(ranks_of(home, node), default=SLOTS) for node in nodes}
    return sorted(nodes, key=ranks.__getitem__)


def elapsed_ms(home: RunningStack, job_id: str) -> dict[int, set[int]]:
    """What the agents of all members say, by attempt; the bill is that of the first one."""
    by_attempt: dict[int, set[int]] = {}
    for _, entry in log_entries(home, job_id, "attempt.ended"):
        by_attempt.setdefault(entry["attempt"], set()).add(entry["elapsed_ms"])
    return by_attempt
