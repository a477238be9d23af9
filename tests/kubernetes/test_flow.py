"""The whole way of a job through a cluster: submitted over HTTP, trained in pods, billed."""

import socket
from pathlib import Path

import pytest

from tests.e2e.stories import replayed, running_stack, training
from tests.kubernetes.conftest import Team
from tests.kubernetes.kubelet import eventually, kubelet
from tunery.local.stack import ServiceSpec

pytestmark = pytest.mark.timeout(1_800)

NODE = "k8s-cpu"


def agent_of(team: Team) -> ServiceSpec:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "KUBECONFIG": team.plane.kubeconfig,
        "NAMESPACE": team.name,
        "QUEUE": "tunery",
        "FLAVOR": team.name,
        "IMAGE": "tunery:1",
        "RESOURCE": "cpu",
        "CPUS_PER_SLOT": 1,
        "DEVICE_MEMORY_BYTES": 8 << 30,
        "MEMORY_PER_SLOT_BYTES": 1 << 30,
        "LISTEN_HOST": "127.0.0.1",
        "POD_HOST": "127.0.0.1",
        "POD_PORT": port,
        "POLL_MS": 500,
    }
    environment = {f"TUNERY_CLUSTER_{name}": str(value) for name, value in settings.items()}
    return ServiceSpec(
        "agent-k8s", module="services.cluster", env={"TUNERY_NODE_ID": NODE, **environment}
    )


async def test_a_job_is_trained_in_a_pod_and_billed_to_the_unit(team: Team, tmp_path: Path) -> None:
    await team.set_quota(cpu="2", memory="64Gi")
    labels = {"tunery.dev/flavor": team.name}
    capacity = {"cpu": "64", "memory": "256Gi"}
    async with (
        kubelet(team.client, team.name, tmp_path, labels, capacity) as node,
        running_stack((agent_of(team),)) as home,
    ):
        try:
            job_id = await home.submit()
            # An eviction in the middle: the pod writes a checkpoint, the job goes on from it.
            await home.with_checkpoint(job_id)
            before = set(node.containers)
            await team.evict()

            async def again() -> bool:
                return bool(set(node.containers) - before)

            await eventually("another pod", again)
            job = await home.api.job(job_id, lambda seen: training(seen) and seen["attempt"] > 1)
            assert job["progress"]["resumed_from_step"]
            await home.api.ended(job_id)
            bill = await home.bill(job_id)
            assert bill["net_gpu_ms"] > 0
            assert (await replayed(home.stack.folders.root))["equal"]
        except BaseException:
            for container in node.containers.values():
                print(container.folder.name, container.log.read_text(errors="replace")[-6_000:])
            log = home.stack.folders.logs / "agent-k8s.log"
            print(log.read_text(errors="replace")[-8_000:])
            raise
