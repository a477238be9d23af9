"""Leases on the real control plane: Kueue admits, JobSet starts, a kubelet runs what is in the pod.

Pods run a stand-in here, so that each test decides how they end. `test_flow` has the real program.
"""

import sys
from pathlib import Path
from typing import Any, Final

import pytest
from lightkube import codecs
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Pod
from lightkube.resources.networking_v1 import NetworkPolicy
from lightkube.types import PatchType

from services.cluster.adapters.kubernetes import KUEUE, JobSet
from services.cluster.domain.manifests import Flavor, LeaseRequest, jobset_of, owned_of
from services.cluster.domain.stages import Admitted, Runs, Waits
from services.cluster.effect.sweeping import Sweeper
from services.cluster.ports import ClusterRefused
from tests.kubernetes.conftest import Team
from tests.kubernetes.leases import (
    AGENT_URL,
    MIB,
    NODE,
    SLEEPS,
    cluster_of,
    leases,
    node_of,
    pod_of,
    template_of,
)
from tests.kubernetes.waiting import eventually
from tunery.local.kubernetes.kubelet import NO_IMAGE, timestamp
from tunery.runtime.clock import SystemClock

pytestmark = pytest.mark.timeout(1_200)

AdmissionCheck = create_global_resource(*KUEUE, "AdmissionCheck", "admissionchecks")
ProvisioningRequestConfig = create_global_resource(
    *KUEUE, "ProvisioningRequestConfig", "provisioningrequestconfigs"
)
ProvisioningRequest = create_namespaced_resource(
    "autoscaling.x-k8s.io", "v1", "ProvisioningRequest", "provisioningrequests"
)
FAILS: Final = (sys.executable, "-c", "import sys; sys.exit(3)")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"bases_claim": "bases"},
        {"bases_image": f"registry.example.com/bases@sha256:{'0' * 64}"},
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
    template = job["template"]["spec"]["template"]
    assert template["spec"]["restartPolicy"] == "Never"
    pod = Pod.from_dict({"metadata": {"name": "lease"}, "spec": template["spec"]})
    created: Any = await team.client.create(pod, dry_run=True)
    volumes = {each.name: each.to_dict() for each in created.spec.volumes}
    assert len(volumes) == len(template["spec"]["volumes"])
    if "bases_image" in changes:  # and no field was dropped
        assert volumes["bases"]["image"]["reference"] == changes["bases_image"]
    for owned in owned_of(request, flavor, {"tls.key": "pem"}):
        owned["metadata"]["ownerReferences"][0]["uid"] = "0000"
        await team.client.create(codecs.from_dict(owned), dry_run=True)


async def test_the_slots_are_those_of_the_quota(team: Team) -> None:
    cluster = cluster_of(team)
    quota = await cluster.quota(team.name, 1)
    assert (quota.slots, quota.flavor.labels) == (4, {"tunery.dev/flavor": team.name})
    await team.set_quota(cpu="2500m", memory="8Gi")
    assert (await cluster.quota(team.name, 1)).slots == 2
    await team.set_quota(memory="8Gi")
    with pytest.raises(ClusterRefused, match=r"no quota of cpu in the flavor"):
        await cluster.quota(team.name, 1)


async def test_a_queue_that_is_missing_is_named(team: Team) -> None:
    cluster = cluster_of(team, queue="absent")
    with pytest.raises(ClusterRefused, match=r'"absent" not found'):
        await cluster.quota(team.name, 1)


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
        policy: Any = await team.client.get(NetworkPolicy, lease.name)
        (own,) = policy.spec.podSelector.matchLabels.items()
        assert own in pod.metadata.labels.items(), "of this lease's pods"
        ((peer,),) = (rule.from_ for rule in policy.spec.ingress)
        assert peer.podSelector == policy.spec.podSelector, "they alone reach each other"
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


async def test_a_lease_waits_for_nodes_that_an_autoscaler_adds(team: Team, tmp_path: Path) -> None:
    """Kueue asks for them; the test is the autoscaler that it asks."""
    name, client = team.name, team.client
    settings = {"provisioningClassName": "check-capacity.autoscaling.x-k8s.io"}
    await client.create(ProvisioningRequestConfig(metadata=ObjectMeta(name=name), spec=settings))
    parameters = {"apiGroup": KUEUE[0], "kind": "ProvisioningRequestConfig", "name": name}
    check = {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters}
    await client.create(AdmissionCheck(metadata=ObjectMeta(name=name), spec=check))
    await team.set_quota(cpu="4", memory="8Gi", check=name)
    async with leases(team) as running:
        lease = await running.start()

        async def waits() -> bool:
            return isinstance(lease.stage, Waits) and lease.stage.cause == "provisioning"

        await eventually("it waits for nodes", waits)

        async def requested() -> Any:
            return next(iter([each async for each in client.list(ProvisioningRequest)]), None)

        request = await eventually("a ProvisioningRequest", requested)
        assert request.spec["provisioningClassName"] == settings["provisioningClassName"]
        async with node_of(team, tmp_path, SLEEPS):
            done = {"type": "Provisioned", "status": "True", "reason": "Provisioned"}
            done |= {"message": "there are nodes", "lastTransitionTime": timestamp()}
            await client.patch(
                ProvisioningRequest.Status,
                request.metadata.name,
                {"status": {"conditions": [done]}},
                patch_type=PatchType.MERGE,
            )
            assert await running.stage(lease, Runs)


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
        quota = await cluster_of(team).quota(team.name, 1)
        await team.client.create(JobSet(jobset_of(other, template_of(), quota.flavor)))
        assert await Sweeper(cluster_of(team), SystemClock(), AGENT_URL, team.name).sweep() == 1
        left = [each.metadata.name async for each in team.client.list(JobSet)]
        assert left == ["t-default-1-b2b2b2b2"]
