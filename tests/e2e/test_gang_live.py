"""A training whose ranks are on two nodes, and what goes wrong with any of them.

Nothing here is a stand-in. No node is large enough alone: the job waits for what it lost, goes on
from its checkpoint each time, and ends with the bytes of one that nothing happened to.
"""

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.stories import Json, RunningStack, rank_of, replayed, running_stack, training
from tunery.local import processes
from tunery.local.stack import ServiceSpec
from tunery.ranks.launching import LOOPBACK

pytestmark = [pytest.mark.train, pytest.mark.timeout(1_200)]

NODES: Final = ("a", "b")
MOMENT_MS: Final = 15_000  # that the pool and an agent may differ, or a third of an attempt
SLOTS_OF_NODE, SLOTS = 2, 3  # each rank needs ten seconds of a core before its first step
METHOD: Final = {
    "type": "supervised",
    "supervised": {"hyperparameters": {"n_epochs": 20, "batch_size": SLOTS}},
}
SMALL: Final = {"slots": SLOTS, "threads": 1, "max_length": 64}


def agent_of(node: str) -> str:
    return f"agent-{node}"


AGENTS: Final = tuple(
    ServiceSpec(
        agent_of(node),
        module="services.trainer",
        env={
            "TUNERY_NODE_ID": node,
            "TUNERY_NODE_SLOTS": str(SLOTS_OF_NODE),
            "TUNERY_NODE_FABRIC": LOOPBACK,
        },
    )
    for node in NODES
)


async def test_a_gang_live_survives_the_loss_of_a_rank_an_agent_and_a_node() -> None:
    async with running_stack(AGENTS) as home:
        asked = home.request(method=METHOD, training=SMALL)
        plan = await home.api.post("/fine_tuning/jobs/plan", asked)
        assert plan["estimate"]["slots"] == SLOTS
        most = len(NODES) * SLOTS_OF_NODE
        too_many = asked | {"training": asked["training"] | {"slots": most + 1}}
        refused = await home.api.call("POST", "/fine_tuning/jobs/plan", json=too_many)
        assert f"together have {most} for it; it is {most + 1}" in refused.text

        job_id = await home.api.submit(asked)
        await saved_after(home, job_id, 0)
        first, second = members(home)
        assert [len(ranks) for ranks in (first, second)] == [SLOTS_OF_NODE, SLOTS - SLOTS_OF_NODE]
        assert sorted({**first, **second}) == list(range(SLOTS)), "numbered over both nodes"

        # 1. One rank on the second node.
        os.kill(second[SLOTS - 1], signal.SIGKILL)
        attempt = await saved_after(home, job_id, 1)
        killed = f"rank {SLOTS - 1} of {SLOTS} (process {second[SLOTS - 1]}) was killed by SIGKILL"
        said = "\n".join(await home.api.messages(job_id))
        assert killed in said, said
        assert not any(alive(pid) for pid in (*first.values(), *second.values()))

        # 2. The agent of the second node, whose processes the next agent finds and kills.
        nodes = nodes_of(home, job_id, attempt)
        before = [pid for ranks in members(home) for pid in ranks.values()]
        assert len(home.stack.kill(agent_of(nodes[1]))) == 1
        attempt = await saved_after(home, job_id, attempt)
        assert not any(alive(pid) for pid in before)

        # 3. The first node, with all that runs on it, until it comes back.
        nodes = nodes_of(home, job_id, attempt)
        home.stack.kill(agent_of(nodes[0]), tree=True, restart=False)
        await home.api.job(job_id, lambda job: job["phase"] != "running")
        await home.stack.start(agent_of(nodes[0]))
        attempt = await saved_after(home, job_id, attempt)

        await home.api.ended(job_id)
        bill = await home.bill(job_id)
        assert bill["credited_gpu_ms"] > 0
        # of the other attempts a node was lost with its clock
        assert_billed(home, job_id, bill, (1, attempt))

        undisturbed = await home.api.submit(asked)
        await home.api.ended(undisturbed)
        bill = await home.bill(undisturbed)
        assert bill["credited_gpu_ms"] == 0
        assert_billed(home, undisturbed, bill, (1,))
        weights = await home.published(job_id)
        assert {"adapter_config.json", "adapter_model.safetensors"} <= weights.keys()
        assert weights == await home.published(undisturbed)
        assert (await replayed(home.stack.folders.root))["equal"]


async def saved_after(home: RunningStack, job_id: str, attempt: int) -> int:
    """The first later attempt that trains and has written a checkpoint of its own.

    One may have been granted to a node that just died. It goes on from the newest checkpoint.
    """
    path = f"/fine_tuning/jobs/{job_id}/checkpoints"
    known = (await home.api.get(path))["data"]
    step = known[0]["step_number"] if known else 0
    job = await home.api.job(job_id, lambda job: (job["attempt"] or 0) > attempt and training(job))
    began = job["progress"]["resumed_from_step"] or 0
    assert began >= step
    await home.api.until(
        path, lambda listed: any(each["step_number"] > began for each in listed["data"])
    )
    return int(job["attempt"])


def assert_billed(home: RunningStack, job_id: str, bill: Json, attempts: tuple[int, ...]) -> None:
    """Assert that these attempts cost their slots x the time that an agent measured.

    The pool counts between two entries of the log, which are a moment nearer to each other or not.
    """
    used, elapsed = Counter[int](), elapsed_ms(home, job_id)
    for line in bill["lines"]:
        used[line["attempt"]] += line["used_gpu_ms"] if line["kind"] == "usage" else 0
    for at in attempts:
        assert used[at] > 0 == used[at] % SLOTS, used
        apart = [abs(used[at] // SLOTS - each) - max(MOMENT_MS, each // 3) for each in elapsed[at]]
        assert min(apart) < 0, (used, elapsed)


def members(home: RunningStack) -> list[dict[int, int]]:
    """Process ids of the ranks of each node by their numbers, the first node first."""
    ranks = [ranks_of(home, node) for node in NODES]
    return sorted((each for each in ranks if each), key=min)


def ranks_of(home: RunningStack, node: str) -> dict[int, int]:
    agent = home.stack.supervisor.pid(agent_of(node))
    below = [] if agent is None else processes.descendants(agent)
    return {rank: pid for pid in below if (rank := rank_of(pid)) is not None}


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def log_entries(home: RunningStack, job_id: str, event: str) -> list[tuple[str, Json]]:
    """Log lines of agents about a job, by node."""
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
    """Elapsed times by attempt in the logs of all members' agents; the first one's is billed."""
    by_attempt: dict[int, set[int]] = {}
    for _, entry in log_entries(home, job_id, "attempt.ended"):
        by_attempt.setdefault(entry["attempt"], set()).add(entry["elapsed_ms"])
    return by_attempt
