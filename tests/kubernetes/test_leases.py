"""Leases on the real control plane: Kueue admits, JobSet starts, a kubelet runs what is in the pod.

Pods run a stand-in here, so that each test decides how they end. `test_flow` has the real program.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
from lightkube.resources.core_v1 import Pod, Secret
from msgspec.structs import replace as changed

from schemas.pool import ConfirmFreed, ReportExit
from services.cluster.adapters.kubernetes import JobSet, KubernetesCluster
from services.cluster.domain.manifests import (
    Flavor,
    LeaseRequest,
    PodTemplate,
    jobset_of,
    secret_of,
)
from services.cluster.domain.stages import Admitted, Runs, Waits
from services.cluster.effect.lease import ClusterLease, LeaseTools
from services.cluster.effect.sweeping import Sweeper
from services.cluster.ports import ClusterRefused, ClusterUnavailable
from tests.kubernetes.conftest import Team
from tests.kubernetes.kubelet import NO_IMAGE, Kubelet, eventually, kubelet
from tests.unit.services.cluster.clusters import Links, PlainSigner, Reported
from tests.unit.services.trainer.domain.test_evolve import grant
from tunery.runtime.clock import SystemClock

pytestmark = pytest.mark.timeout(1_200)

SLEEPS: Final = (sys.executable, "-c", "import time; time.sleep(3600)")
FAILS: Final = (sys.executable, "-c", "import sys; sys.exit(3)")
CAPACITY: Final = {"cpu": "64", "memory": "64Gi"}
MIB: Final = 1 << 20
NODE: Final = grant().node_id


def template_of(**changes: Any) -> PodTemplate:
    template = PodTemplate(
        image="tunery:1",
        queue="tunery",
        agent_url="https://127.0.0.1:1",
        resource="cpu",
        cpus_per_slot=1,
        memory_per_slot_bytes=256 * MIB,
        grace_s=5,
    )
    return replace(template, **changes)


@dataclass
class Leases:
    """Leases of one agent in a team's namespace."""

    team: Team
    cluster: KubernetesCluster
    reports: Reported
    tasks: list[asyncio.Task[None]]

    async def start(self, number: int = 1, slots: int = 1, **changes: Any) -> ClusterLease:
        """Run a lease. changes: of the pod template, `wait_ms_max`, `stuck_ms_max`."""
        own, quota = grant(slots), await self.cluster.quota()
        token = changed(own.token, lease=number)
        own = changed(own, lease=changed(own.lease, token=token))
        wait_ms_max = changes.pop("wait_ms_max", 600_000)
        stuck_ms_max = changes.pop("stuck_ms_max", 600_000)
        tools = LeaseTools(
            cluster=self.cluster,
            server=Links(),
            signer=PlainSigner(),
            reports=self.reports,
            clock=SystemClock(),
            template=template_of(**changes),
            flavor=quota.flavor,
            incarnation="a1" * 16,
            encrypts=True,
            wait_ms_max=wait_ms_max,
            stuck_ms_max=stuck_ms_max,
            poll_ms=300,
        )
        lease = ClusterLease(own, tools)
        self.tasks.append(asyncio.create_task(lease.run()))
        return lease

    async def stage(self, lease: ClusterLease, kind: type[Any]) -> Any:
        """Wait until the lease is in a stage of this kind, which is returned."""

        async def reached() -> Any:
            return lease.stage if isinstance(lease.stage, kind) else None

        return await eventually(f"{lease.name} is {kind.__name__}", reached)

    async def end(self) -> ReportExit:
        """How the last lease ended; nothing of it is left in the cluster."""
        await asyncio.wait_for(self.tasks[-1], 300)
        (said,) = [each for each in self.reports.facts if isinstance(each, ReportExit)]
        assert isinstance(self.reports.facts[-1], ConfirmFreed)
        client = self.team.client
        assert [pod async for pod in client.list(Pod)] == []
        assert [each async for each in client.list(JobSet)] == []

        async def no_secret() -> bool:
            return [each async for each in client.list(Secret)] == []

        await eventually("the Secret is gone with its JobSet", no_secret)
        return said


def cluster_of(team: Team) -> KubernetesCluster:
    return KubernetesCluster(
        team.client, NODE, "tunery", team.name, resource="cpu", per_slot=1, fresh_s=0.2
    )


@asynccontextmanager
async def leases(team: Team) -> AsyncIterator[Leases]:
    own = Leases(team, cluster_of(team), Reported(), [])
    try:
        yield own
    finally:
        for task in own.tasks:
            task.cancel()
        await asyncio.gather(*own.tasks, return_exceptions=True)


@asynccontextmanager
async def node_of(team: Team, folder: Path, command: Sequence[str]) -> AsyncIterator[Kubelet]:
    labels = {"tunery.dev/flavor": team.name}
    async with kubelet(team.client, team.name, folder, labels, CAPACITY, command) as node:
        yield node


async def pod_of(team: Team) -> Any:
    """The only pod, once there is one."""

    async def first() -> Any:
        return next(iter([pod async for pod in team.client.list(Pod)]), None)

    return await eventually("a pod", first)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"bases_claim": "bases"},
        {"user_namespaces": True},
        {"resource": "nvidia.com/gpu"},
    ],
)
async def test_the_api_server_takes_every_manifest(team: Team, changes: dict[str, Any]) -> None:
    request = LeaseRequest(NODE, "a1" * 16, "default", 1, "ftjob-1", 1, "standard", 2, MIB)
    flavor = Flavor(
        team.name, {"tunery.dev/flavor": team.name}, ({"key": "gpu", "effect": "NoExecute"},)
    )
    manifest = jobset_of(request, template_of(**changes), flavor)
    accepted = await team.client.create(JobSet(manifest), dry_run=True)
    assert accepted["spec"]["suspend"] is True
    (job,) = accepted["spec"]["replicatedJobs"]
    assert job["template"]["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    secret = secret_of(request, {"tls.key": "pem"})
    (owner,) = secret["metadata"]["ownerReferences"]
    owner["uid"] = "0000"
    await team.client.create(Secret.from_dict(secret), dry_run=True)


async def test_the_slots_are_those_of_the_quota(team: Team) -> None:
    cluster = cluster_of(team)
    quota = await cluster.quota()
    assert (quota.slots, quota.flavor.labels) == (4, {"tunery.dev/flavor": team.name})
    await team.set_quota(cpu="2500m", memory="8Gi")
    assert (await cluster.quota()).slots == 2
    await team.set_quota(memory="8Gi")
    with pytest.raises(ClusterRefused, match=r"no quota of cpu in the flavor"):
        await cluster.quota()


async def test_a_queue_that_is_missing_is_named(team: Team) -> None:
    cluster = KubernetesCluster(
        team.client, NODE, "absent", team.name, resource="cpu", per_slot=1, fresh_s=0.2
    )
    with pytest.raises(ClusterRefused, match=r'"absent" not found'):
        await cluster.quota()


async def test_a_lease_is_admitted_runs_and_dies_of_its_memory_alone(
    team: Team, tmp_path: Path
) -> None:
    async with node_of(team, tmp_path, SLEEPS) as node, leases(team) as running:
        lease = await running.start()
        await running.stage(lease, Runs)
        pod = await pod_of(team)
        assert pod.spec.nodeSelector["tunery.dev/flavor"] == team.name
        (container,) = pod.spec.containers
        assert container.resources.limits == {"cpu": "1", "memory": str(256 * MIB)}
        node.kill_for_memory(pod.metadata.name)
        said = await running.end()
        assert (said.outcome, said.cause) == ("failed", "oom")


async def test_a_pod_that_fails_is_not_started_again(team: Team, tmp_path: Path) -> None:
    async with node_of(team, tmp_path, FAILS) as node, leases(team) as running:
        await running.start()
        said = await running.end()
        assert (said.outcome, said.cause) == ("failed", "platform")
        assert len(node.containers) == 1


async def test_what_does_not_fit_waits_in_kueues_words_and_is_given_back(
    team: Team, tmp_path: Path
) -> None:
    async with node_of(team, tmp_path, SLEEPS), leases(team) as running:
        lease = await running.start(slots=9, wait_ms_max=5_000)
        waits = await running.stage(lease, Waits)
        assert isinstance(waits, Waits)

        async def says_why() -> bool:
            return isinstance(lease.stage, Waits) and "cpu" in lease.stage.words

        await eventually("Kueue's words", says_why)
        said = await running.end()
        assert said.outcome == "not_started"


async def test_a_lease_that_waits_starts_when_there_is_room(team: Team, tmp_path: Path) -> None:
    await team.set_quota(cpu="1", memory="8Gi")
    async with node_of(team, tmp_path, SLEEPS), leases(team) as running:
        first = await running.start(1)
        await running.stage(first, Runs)
        second = await running.start(2)

        async def waits() -> bool:
            return isinstance(second.stage, Waits) and second.stage.cause == "quota"

        await eventually("the second waits for quota", waits)
        first.set_target("kill")
        assert await running.stage(second, Runs)


async def test_a_lease_that_kueue_evicts_is_preempted(team: Team, tmp_path: Path) -> None:
    async with node_of(team, tmp_path, SLEEPS), leases(team) as running:
        lease = await running.start()
        await running.stage(lease, Runs)
        lease.welcome()
        await team.set_stop_policy("HoldAndDrain")
        said = await running.end()
        assert said.outcome == "preempted"


async def test_an_image_that_cannot_be_pulled_blames_the_node(team: Team, tmp_path: Path) -> None:
    async with node_of(team, tmp_path, SLEEPS), leases(team) as running:
        await running.start(image=f"{NO_IMAGE}:1", stuck_ms_max=3_000)
        said = await running.end()
        assert (said.outcome, said.cause) == ("failed", "bad_node")


async def test_a_flavor_without_nodes_blames_the_node(team: Team) -> None:
    async with leases(team) as running:
        lease = await running.start(stuck_ms_max=3_000)
        stuck = await running.stage(lease, Admitted)
        assert isinstance(stuck, Admitted)
        said = await running.end()
        assert (said.outcome, said.cause) == ("failed", "bad_node")


async def test_a_jobset_that_somebody_deletes_ends_its_lease(team: Team, tmp_path: Path) -> None:
    async with node_of(team, tmp_path, SLEEPS), leases(team) as running:
        lease = await running.start()
        await running.stage(lease, Runs)
        await team.client.delete(JobSet, lease.name)
        said = await running.end()
        assert (said.outcome, said.cause) == ("failed", "platform")


async def test_what_an_earlier_agent_left_goes_and_what_is_anothers_stays(
    team: Team, tmp_path: Path
) -> None:
    async with node_of(team, tmp_path, SLEEPS):
        async with leases(team) as before:
            lease = await before.start()
            await before.stage(lease, Runs)
        other = LeaseRequest("another", "b2" * 16, "default", 1, "j", 1, "free", 1, MIB)
        quota = await cluster_of(team).quota()
        await team.client.create(JobSet(jobset_of(other, template_of(), quota.flavor)))
        assert await Sweeper(cluster_of(team), SystemClock()).sweep() == 1
        left = [each.metadata.name async for each in team.client.list(JobSet)]
        assert left == ["t-default-1-b2b2b2b2"]


async def test_an_api_server_that_dies_takes_no_lease_with_it(team: Team, tmp_path: Path) -> None:
    async with node_of(team, tmp_path, SLEEPS) as node, leases(team) as running:
        lease = await running.start()
        await running.stage(lease, Runs)
        team.plane.kill("apiserver")
        with pytest.raises(ClusterUnavailable):
            await cluster_of(team).look()
        (container,) = node.containers.values()
        assert container.process.returncode is None
        assert not running.tasks[-1].done()
        await team.plane.restart("apiserver")
        lease.set_target("kill")
        said = await running.end()
        assert said.outcome == "not_started", "its pod had not begun"
