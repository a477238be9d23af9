"""The whole way of a job through a cluster: submitted over HTTP, trained in pods, billed."""

import json
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from lightkube.models.meta_v1 import ObjectMeta

from services.cluster.adapters.kubernetes import JobSet, ResourceFlavor
from tests.e2e.stories import RunningStack, replayed, running_stack, training
from tests.kubernetes.conftest import Team
from tests.kubernetes.waiting import eventually
from tunery.local.kubernetes.kubelet import Container, Kubelet, kubelet
from tunery.local.stack import ServiceSpec

pytestmark = pytest.mark.timeout(1_800)

NODE: Final = "k8s"
AGENT: Final = "agent-k8s"


def second_of(team: Team) -> str:
    """Name of another flavor of the team's queue."""
    return f"{team.name}-small"


def agent_of(team: Team) -> ServiceSpec:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "KUBECONFIG": team.plane.kubeconfig,
        "NAMESPACE": team.name,
        "QUEUE": "tunery",
        "FLAVORS": json.dumps(
            {name: {"device_memory_bytes": 8 << 30} for name in (team.name, second_of(team))}
        ),
        "IMAGE": "tunery:1",
        "RESOURCE": "cpu",
        "CPUS_PER_SLOT": 1,
        "MEMORY_PER_SLOT_BYTES": 1 << 30,
        "LISTEN_HOST": "127.0.0.1",
        "POD_HOST": "127.0.0.1",
        "POD_PORT": port,
        "POLL_MS": 500,
    }
    environment = {f"TUNERY_CLUSTER_{name}": str(value) for name, value in settings.items()}
    return ServiceSpec(
        AGENT, module="services.cluster", env={"TUNERY_NODE_ID": NODE, **environment}
    )


@asynccontextmanager
async def stack_with_pods(team: Team, folder: Path) -> AsyncIterator[tuple[RunningStack, Kubelet]]:
    """A stack that trains in pods of a team's queue; the logs of all of them where it fails."""
    second = second_of(team)
    labels = {"tunery.dev/flavor": team.name, "tunery.dev/small": team.name}
    await team.client.create(
        ResourceFlavor(
            metadata=ObjectMeta(name=second), spec={"nodeLabels": {"tunery.dev/small": team.name}}
        )
    )
    await team.set_quota(cpu="2", memory="64Gi", flavors=(team.name, second))
    capacity = {"cpu": "64", "memory": "256Gi"}
    async with (
        kubelet(team.client, team.name, folder, labels, capacity) as node,
        running_stack((agent_of(team),)) as home,
    ):
        try:
            yield home, node
        except BaseException:
            for container in node.containers.values():
                print(container.folder.name, container.log.read_text(errors="replace")[-6_000:])
            log = home.stack.folders.logs / f"{AGENT}.log"
            print(log.read_text(errors="replace")[-8_000:])
            raise


async def next_attempt(home: RunningStack, job_id: str, before: int) -> int:
    """Wait until a later attempt trains, from a checkpoint; its number."""
    job = await home.api.job(job_id, lambda seen: training(seen) and seen["attempt"] > before)
    assert job["progress"]["resumed_from_step"]
    return int(job["attempt"])


async def further(home: RunningStack, job_id: str) -> None:
    """Wait until the job has completed some more steps."""
    step = (await home.api.job(job_id, training))["progress"]["step"]
    await home.api.job(job_id, lambda seen: seen["progress"]["step"] > step + 2)


async def another_pod(node: Kubelet, before: set[str]) -> Container:
    """Wait for a pod beside those of before."""

    async def first() -> Container | None:
        return next((node.containers[uid] for uid in set(node.containers) - before), None)

    container: Container = await eventually("another pod", first)
    return container


async def assert_billed_to_the_unit(home: RunningStack, job_id: str) -> None:
    bill = await home.bill(job_id)
    assert bill["net_gpu_ms"] == bill["billable_gpu_ms"] - bill["credited_gpu_ms"] > 0


async def test_jobs_are_trained_in_pods_survive_what_becomes_of_these_and_are_billed_to_the_unit(
    team: Team, tmp_path: Path
) -> None:
    async with stack_with_pods(team, tmp_path) as (home, node):
        nodes = (await home.api.patiently("GET", "/nodes")).json()["data"]
        slots = {each["id"]: each["slots"] for each in nodes if each["id"].startswith(NODE)}
        assert slots == {f"{NODE}:{team.name}": 2, f"{NODE}:{second_of(team)}": 2}
        evicted = await home.submit()
        # An eviction in the middle: the pod writes a checkpoint, the job goes on from it.
        await home.with_checkpoint(evicted)
        before = set(node.containers)
        await team.evict()
        await another_pod(node, before)
        await next_attempt(home, evicted, 1)
        await home.api.ended(evicted)
        before = set(node.containers)
        job_id = await home.submit(n_epochs=40)
        container = await another_pod(node, before)
        # The API server and etcd: the pod trains on, and says so to its agent.
        await home.with_checkpoint(job_id)
        for server in ("apiserver", "etcd"):
            team.plane.kill(server)
            await further(home, job_id)
            await team.plane.restart(server)
        job = await home.api.job(job_id, training)
        assert job["attempt"] == 1
        # The pod's program.
        before = set(node.containers)
        os.killpg(container.process.pid, signal.SIGKILL)
        attempt = await next_attempt(home, job_id, 1)
        # All that the pod's memory limit allows.
        container = await another_pod(node, before)
        node.kill_for_memory(container.folder.name)
        attempt = await next_attempt(home, job_id, attempt)
        # The agent: the next one removes the pod, and its job goes on in another.
        assert home.stack.kill(AGENT)
        await next_attempt(home, job_id, attempt)
        reply = await home.api.patiently("POST", f"/fine_tuning/jobs/{job_id}/cancel")
        assert reply.is_success, reply.text
        await home.api.ended(job_id, "cancelled")

        async def nothing_is_left() -> bool:
            jobsets = [each async for each in team.client.list(JobSet)]
            ended = all(each.process.returncode is not None for each in node.containers.values())
            return not jobsets and ended

        await eventually("no pod is left", nothing_is_left)
        for each in (evicted, job_id):
            await assert_billed_to_the_unit(home, each)
        assert (await replayed(home.stack.folders.root))["equal"]
