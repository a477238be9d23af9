"""500 leases of eight agents on 1,000 simulated nodes: nothing is left over.

`make test-kubernetes ARGS="-m soak -s -n0"` prints the requests that a lease costs. It has run with
40 leases of four agents on 60 nodes (6.0 requests a lease); in its full size it has not.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2
import pytest
from lightkube import ApiError
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Node, NodeStatus, Pod, PodStatus, Secret
from lightkube.resources.networking_v1 import NetworkPolicy
from lightkube.types import PatchType
from msgspec.structs import replace

from schemas.pool import ConfirmFreed, ReportExit
from services.cluster.adapters.kubernetes import JobSet, Workload
from services.cluster.domain.manifests import Flavor
from services.cluster.effect.lease import ClusterLease, LeaseTools
from services.cluster.effect.sweeping import Sweeper
from tests.kubernetes.conftest import Team
from tests.kubernetes.leases import AGENT_URL, cluster_of, template_of
from tests.kubernetes.waiting import eventually
from tests.unit.services.cluster.clusters import Links, PlainSigner, Reported
from tests.unit.services.trainer.domain.test_evolve import grant
from tunery.local.kubernetes.kubelet import timestamp
from tunery.runtime.clock import SystemClock

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3_600)]

NODES: Final = 1_000
AGENTS: Final = 8
LEASES: Final = 500
ADMITTED_MAX: Final = 300  # leases that Kueue admits at a time
RUN_S: Final = 5.0
SECONDS_MAX: Final = 3_000.0
PARALLEL: Final = 20
GONE: Final = 404
CLOCK: Final = SystemClock()


class Counted:
    """A client whose requests are counted by verb and kind."""

    def __init__(self, client: Any) -> None:
        self._client, self.requests = client, Counter[str]()

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        def call(kind: Any, *arguments: Any, **options: Any) -> Any:
            named = kind if isinstance(kind, type) else type(kind)
            self.requests[f"{verb} {named.__name__}"] += 1
            return getattr(self._client, verb)(kind, *arguments, **options)

        return call


@dataclass
class SimulatedNodes:
    """Nodes without processes: each pod runs for RUN_S, then it has succeeded."""

    team: Team
    started: int = 0  # pods so far

    async def register(self) -> None:
        await in_parallel([self._node(number) for number in range(NODES)])

    async def _node(self, number: int) -> None:
        client, name = self.team.client, f"{self.team.name}-{number}"
        labels = {"kubernetes.io/hostname": name, "tunery.dev/flavor": self.team.name}
        await client.create(Node(metadata=ObjectMeta(name=name, labels=labels)))
        amounts = {"cpu": "1", "memory": "4Gi", "pods": "4"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}
        times = {"lastHeartbeatTime": timestamp(), "lastTransitionTime": timestamp()}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready | times]}
        await client.patch(NodeStatus, name, {"status": status}, patch_type=PatchType.MERGE)

    async def run(self) -> None:
        """Work until cancelled."""
        seen = set[str]()
        async with asyncio.TaskGroup() as running:
            while True:
                with suppress(httpx2.HTTPError):  # the API server ends watches that are too slow
                    async for change, pod in self.team.client.watch(Pod):
                        name = pod.metadata.name
                        if change == "DELETED":
                            continue
                        if pod.metadata.deletionTimestamp:
                            running.create_task(self._unless_gone(self._delete(name)))
                        elif pod.spec.nodeName and name not in seen:
                            seen.add(name)
                            running.create_task(self._unless_gone(self._run_pod(name)))

    async def _run_pod(self, name: str) -> None:
        await self._status(name, "Running", {"running": {"startedAt": timestamp()}})
        self.started += 1
        await asyncio.sleep(RUN_S)
        end = {"exitCode": 0, "reason": "Completed"}
        await self._status(name, "Succeeded", {"terminated": end})

    async def _delete(self, name: str) -> None:
        await self.team.client.delete(Pod, name, grace_period=0)

    async def _unless_gone(self, request: Awaitable[None]) -> None:
        try:
            await request
        except ApiError as error:
            if error.status.code != GONE:
                raise

    async def _status(self, name: str, phase: str, state: dict[str, Any]) -> None:
        container = {"name": "attempt", "image": "x", "imageID": "", "ready": False}
        container |= {"restartCount": 0, "state": state}
        status = {"phase": phase, "startTime": timestamp(), "containerStatuses": [container]}
        await self.team.client.patch(
            PodStatus, name, {"status": status}, patch_type=PatchType.STRATEGIC
        )


async def in_parallel(requests: Iterable[Awaitable[Any]]) -> None:
    """Wait for all, some at a time."""
    limit = asyncio.Semaphore(PARALLEL)

    async def limited(request: Awaitable[Any]) -> None:
        async with limit:
            await request

    await asyncio.gather(*map(limited, requests))


@dataclass
class Agent:
    """One of the agents, with its share of the leases."""

    team: Team
    client: Counted
    number: int
    reports: Reported = field(default_factory=Reported)
    leases: list[ClusterLease] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def node_id(self) -> str:
        return f"k8s-{self.number}"

    def start(self, numbers: Iterable[int], flavor: Flavor) -> None:
        client: Any = self.client
        cluster = cluster_of(self.team, client, agent=self.node_id)
        tools = LeaseTools(
            cluster=cluster,
            server=Links(),
            signer=PlainSigner(),
            reports=self.reports,
            clock=CLOCK,
            template=template_of(),
            flavor=flavor,
            incarnation=f"{self.number:032x}"[::-1],
            encrypts=True,
            wait_ms_max=round(SECONDS_MAX * 1_000),
            stuck_ms_max=round(SECONDS_MAX * 1_000),
            poll_ms=2_000,
        )
        for number in numbers:
            granted = grant()
            token = replace(granted.token, lease=number)
            member = replace(granted.member, node_id=self.node_id)
            granted = replace(granted, lease=replace(granted.lease, token=token), member=member)
            self.leases.append(ClusterLease(granted, tools))
            self.tasks.append(asyncio.create_task(self.leases[-1].run()))


async def test_500_leases_on_1000_nodes_leave_nothing_over(team: Team) -> None:
    await team.set_quota(cpu=str(ADMITTED_MAX), memory="4Ti")
    flavor = (await cluster_of(team).quota(team.name, 1)).flavor
    nodes = SimulatedNodes(team)
    await nodes.register()
    client = Counted(team.client)
    agents = [Agent(team, client, number) for number in range(AGENTS)]
    began_s = time.monotonic()
    running = asyncio.create_task(nodes.run())
    try:
        for agent in agents:
            agent.start(range(agent.number, LEASES, AGENTS), flavor)
        # Every tenth is killed wherever it is, and one agent dies with all of its leases.
        await eventually(
            "pods run", lambda: asyncio.sleep(0, nodes.started > ADMITTED_MAX // 2), 900
        )
        for agent in agents:
            for lease in agent.leases[::10]:
                lease.set_target("kill")
        dead, *alive = agents
        for task in dead.tasks:
            task.cancel()
        await asyncio.gather(*dead.tasks, return_exceptions=True)
        next_one = cluster_of(team, agent=dead.node_id)
        await Sweeper(next_one, CLOCK, AGENT_URL, team.name).sweep()
        async with asyncio.timeout(SECONDS_MAX):
            await asyncio.gather(*(task for agent in alive for task in agent.tasks))
        for agent in alive:
            for kind in (ReportExit, ConfirmFreed):
                said = [each.token.lease for each in agent.reports.facts if isinstance(each, kind)]
                assert sorted(said) == list(range(agent.number, LEASES, AGENTS)), kind
        seconds = time.monotonic() - began_s

        async def is_empty() -> bool:
            kinds: tuple[Any, ...] = (JobSet, Workload, Pod, Secret, NetworkPolicy)
            return not [each for kind in kinds async for each in team.client.list(kind)]

        await eventually("nothing is left", is_empty)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    total = client.requests.total()
    print(
        f"\n{LEASES} leases, {NODES} nodes, {seconds:.0f} s: {total / LEASES:.1f} requests a lease"
    )
    for name, count in client.requests.most_common():
        print(f"{count / LEASES:8.2f} {name}")
