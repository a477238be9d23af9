"""The cluster beside a stack: one node, and a queue of Kueue in which leases wait.

`python -m tunery.local.kubernetes.laptop FOLDER` runs it until SIGTERM. Nothing of it is kept from
one start to the next: leases of before are over, and their jobs go on from their checkpoints.
"""

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tunery.local.child import Child, LogText
from tunery.local.errors import LocalError
from tunery.local.kubernetes.programs import folder_of_programs
from tunery.local.ports import HOST

if TYPE_CHECKING:
    from lightkube import AsyncClient

NAME: Final = "kubernetes"
AGENT: Final = "cluster"  # service, and name that it proves as a node
MODULE: Final = "tunery.local.kubernetes.laptop"
NAMESPACE, QUEUE, FLAVOR = "tunery-leases", "tunery", "laptop"
LABELS: Final = {"tunery.dev/flavor": FLAVOR}
LANES: Final = {"premium": 3_000, "standard": 2_000, "free": 1_000}
READY: Final = "kubernetes.ready"
READY_MS_MAX: Final = 300_000
STOP_MS_MAX: Final = 45_000
WAIT_S: Final = 0.3
ACCOUNT_TRIES_MAX: Final = 400
SLOTS: Final = 2
KUEUE: Final = "kueue.x-k8s.io/v1beta2"


def install() -> None:
    """Build what is missing, which takes minutes the first time. Raises LocalError."""
    if find_spec("lightkube") is None:
        raise LocalError(
            "--kubernetes needs packages that are not installed", "pip install 'tunery[cluster]'"
        )
    folder_of_programs()


def child(folder: Path) -> Child:
    """The process that runs the cluster, with its files in `folder`."""
    return Child(
        name=NAME,
        argv=(sys.executable, "-m", MODULE, str(folder)),
        cwd=Path("/"),
        ready=LogText((READY.encode(),)),
        ready_ms_max=READY_MS_MAX,
        stop_ms_max=STOP_MS_MAX,
    )


def agent_environment(folder: Path) -> dict[str, str]:
    """Settings of the agent, besides those of every service of the stack."""
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // SLOTS
    settings = {
        "KUBECONFIG": folder / "plane" / "kubeconfig",
        "NAMESPACE": NAMESPACE,
        "QUEUE": QUEUE,
        "FLAVORS": json.dumps({FLAVOR: {"device_memory_bytes": memory}}),
        "IMAGE": "tunery",
        "RESOURCE": "cpu",
        "CPUS_PER_SLOT": 1,
        "MEMORY_PER_SLOT_BYTES": memory,
        "LISTEN_HOST": HOST,
        "POD_HOST": HOST,
        "POD_PORT": port,
        "POLL_MS": 500,
    }
    variables = {f"TUNERY_CLUSTER_{name}": str(value) for name, value in settings.items()}
    return {"TUNERY_NODE_ID": AGENT, **variables}


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[None]:
    """The cluster, with its node and its queue, until the end of the block. Raises LocalError."""
    from lightkube import AsyncClient, KubeConfig

    from tunery.local.kubernetes.cluster import control_plane
    from tunery.local.kubernetes.kubelet import kubelet

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    programs = folder_of_programs()
    async with control_plane(programs, folder / "plane") as plane:
        config = KubeConfig.from_file(plane.kubeconfig)
        client = AsyncClient(config=config, namespace=NAMESPACE, trust_env=False)
        try:
            await _prepare(client)
            amounts = {"cpu": "64", "memory": "1Ti"}  # what is admitted says the queue's quota
            async with kubelet(client, FLAVOR, folder / "pods", LABELS, amounts):
                yield
        finally:
            await client.close()


async def _prepare(client: "AsyncClient") -> None:
    """Make the namespace of leases, its queue, and a priority class for each lane."""
    from lightkube.models.meta_v1 import ObjectMeta
    from lightkube.resources.core_v1 import Namespace, ServiceAccount

    pods = {"pod-security.kubernetes.io/enforce": "restricted"}
    await client.create(Namespace(metadata=ObjectMeta(name=NAMESPACE, labels=pods)))
    for manifest in _queue():
        await client.create(manifest)
    for _ in range(ACCOUNT_TRIES_MAX):  # without it the API server refuses pods
        if "default" in [each.metadata.name async for each in client.list(ServiceAccount)]:
            return
        await asyncio.sleep(WAIT_S)
    raise LocalError(f"the namespace {NAMESPACE} got no service account", "start it again")


def _queue() -> list[Any]:
    from lightkube import codecs
    from lightkube.generic_resource import create_global_resource, create_namespaced_resource

    for kind, plural in (
        ("ResourceFlavor", "resourceflavors"),
        ("ClusterQueue", "clusterqueues"),
        ("WorkloadPriorityClass", "workloadpriorityclasses"),
    ):
        create_global_resource(*KUEUE.split("/"), kind, plural)
    create_namespaced_resource(*KUEUE.split("/"), "LocalQueue", "localqueues")

    def manifest(kind: str, name: str, **fields: Any) -> Any:
        metadata = {"name": name, **({"namespace": NAMESPACE} if kind == "LocalQueue" else {})}
        return codecs.from_dict({"apiVersion": KUEUE, "kind": kind, "metadata": metadata, **fields})

    amounts = {"cpu": str(SLOTS), "memory": "1Ti"}
    resources = [{"name": name, "nominalQuota": amount} for name, amount in amounts.items()]
    flavors = [{"name": FLAVOR, "resources": resources}]
    spec = {
        "namespaceSelector": {},
        "queueingStrategy": "BestEffortFIFO",
        "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": [*amounts], "flavors": flavors}],
    }
    return [
        *(
            manifest("WorkloadPriorityClass", f"tunery-{lane}", value=v)
            for lane, v in LANES.items()
        ),
        manifest("ResourceFlavor", FLAVOR, spec={"nodeLabels": LABELS}),
        manifest("ClusterQueue", QUEUE, spec=spec),
        manifest("LocalQueue", QUEUE, spec={"clusterQueue": QUEUE}),
    ]


async def _run(folder: Path) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with cluster(folder):
        print(READY, flush=True)
        await stopped.wait()


if __name__ == "__main__":
    asyncio.run(_run(Path(sys.argv[1])))
