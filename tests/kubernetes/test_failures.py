"""Failures of a cluster: dead servers, a backup, missing rights, policies, wrong queues."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from lightkube import AsyncClient, KubeConfig
from lightkube.config.models import User
from lightkube.core.resource import api_info
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.authentication_v1 import TokenRequestSpec
from lightkube.models.core_v1 import ResourceQuotaSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.models.rbac_v1 import PolicyRule, RoleRef, Subject
from lightkube.resources.admissionregistration_v1 import (
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
)
from lightkube.resources.core_v1 import (
    Node,
    Pod,
    ResourceQuota,
    ServiceAccount,
    ServiceAccountToken,
)
from lightkube.resources.rbac_authorization_v1 import (
    ClusterRole,
    ClusterRoleBinding,
    Role,
    RoleBinding,
)
from lightkube.types import PatchType

from services.cluster.adapters import kubernetes
from services.cluster.adapters.kubernetes import JobSet, ResourceFlavor
from services.cluster.domain.manifests import LeaseRequest, jobset_of, owned_of
from services.cluster.domain.stages import NO_POD, Admitted, Runs, Waits
from services.cluster.effect.lease import ClusterLease
from services.cluster.effect.sweeping import NodeNameTaken, OrphanWatch, Sweeper
from services.cluster.ports import ClusterRefused, ClusterUnavailable
from tests.infra.chart import example_objects
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
from tunery.runtime.clock import SystemClock

pytestmark = pytest.mark.timeout(1_200)

SERVERS: Final = ("apiserver", "etcd")
CONTROLLERS: Final = ("controller-manager", "scheduler", "jobset", "kueue")
CLOCK: Final = SystemClock()


async def jobsets(team: Team) -> list[str]:
    return [each.metadata.name async for each in team.client.list(JobSet)]


# --- servers of the control plane that die ---------------------------------------------------


@pytest.mark.parametrize("server", SERVERS)
async def test_a_server_that_dies_takes_no_lease_with_it(
    team: Team, tmp_path: Path, server: str
) -> None:
    async with node_of(team, tmp_path, SLEEPS) as node, leases(team) as running:
        lease = await running.start()
        await running.stage(lease, Runs)
        team.plane.kill(server)

        async def is_away() -> bool:
            try:
                await cluster_of(team).look()
            except ClusterUnavailable:
                return True
            return False

        await eventually(f"{server} is missed", is_away)
        (container,) = node.containers.values()
        assert container.process.returncode is None
        assert not running.tasks[-1].done()
        # What begins and ends meanwhile does so afterwards.
        second = await running.start(2)
        lease.set_target("kill")
        await eventually("its end is reported", lambda: asyncio.sleep(0, running.exits))
        await team.plane.restart(server)
        await running.stage(second, Runs)
        await running.tasks[0]
        assert await jobsets(team) == [second.name]
        (said,) = running.exits
        assert (said.token.lease, said.outcome) == (1, "not_started"), "its pod had not begun"


@pytest.mark.parametrize("server", [*SERVERS, *CONTROLLERS])
async def test_a_lease_that_waits_starts_although_a_server_died(
    team: Team, tmp_path: Path, server: str
) -> None:
    await team.set_stop_policy("Hold")
    async with node_of(team, tmp_path, SLEEPS), leases(team) as running:
        lease = await running.start()
        await running.stage(lease, Waits)

        async def has_jobset() -> bool:
            return lease.name in await jobsets(team)

        await eventually("its JobSet", has_jobset)
        team.plane.kill(server)
        await team.plane.restart(server)

        async def is_let_go() -> bool:
            try:
                await team.set_stop_policy("None")
            except Exception:  # its webhook may be away still
                return False
            return True

        await eventually("the queue goes on", is_let_go)
        await running.stage(lease, Runs)
        assert await jobsets(team) == [lease.name]


async def test_a_backup_of_etcd_brings_no_ended_lease_back(team: Team, tmp_path: Path) -> None:
    async with node_of(team, tmp_path / "node", SLEEPS), leases(team) as running:
        first = await running.start(1)
        await running.stage(first, Runs)
        await team.plane.back_up(tmp_path / "backup")
        first.set_target("kill")
        await running.end()
        await team.plane.restore(tmp_path / "backup")
        assert await jobsets(team) == [first.name], "of the past"
        second = await running.start(2)
        watch = OrphanWatch(cluster_of(team), running.links, CLOCK, AGENT_URL)

        async def only_second() -> bool:
            try:
                await watch.sweep()
            except ClusterUnavailable:  # Kueue's webhook starts
                return False
            return await jobsets(team) == [second.name]

        await eventually("the ended lease is gone", only_second)
        await running.stage(second, Runs)


# --- the agent and its pods --------------------------------------------------------------------


@pytest.mark.parametrize("point", ["its JobSet has no Secret", "waits", "runs"])
async def test_an_agent_that_dies_leaves_nothing_to_the_next(
    team: Team, tmp_path: Path, point: str
) -> None:
    async with node_of(team, tmp_path, SLEEPS) as node:
        if point == "waits":
            await team.set_stop_policy("Hold")
        if point == "its JobSet has no Secret":
            request = LeaseRequest(NODE, "a1" * 16, "default", 1, "j", 1, "free", 1, MIB)
            flavor = (await cluster_of(team).quota(team.name, 1)).flavor
            await team.client.create(JobSet(jobset_of(request, template_of(), flavor)))
            await pod_of(team)
        else:
            async with leases(team) as before:
                lease = await before.start()
                await before.stage(lease, Runs if point == "runs" else Waits)

                async def has_jobset(lease: ClusterLease = lease) -> bool:
                    return lease.name in await jobsets(team)

                await eventually("its JobSet", has_jobset)
        assert await Sweeper(cluster_of(team), CLOCK, AGENT_URL, team.name).sweep() == 1
        assert await jobsets(team) == []
        assert [pod async for pod in team.client.list(Pod)] == []

        async def all_ended() -> bool:
            return all(each.process.returncode is not None for each in node.containers.values())

        await eventually("no process is left", all_ended)


async def test_a_node_that_is_lost_frees_its_slots_although_its_kubelet_ends_no_pod(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node_of(team, tmp_path, SLEEPS) as node, leases(team) as running:
        lease = await running.start(grace_s=1)
        await running.stage(lease, Runs)
        monkeypatch.setattr(node, "sync", partial(asyncio.sleep, 0))
        # As the controller manager does it once the pod's toleration has ended.
        taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
        spec = {"spec": {"taints": [taint]}}
        await team.client.patch(Node, team.name, spec, patch_type=PatchType.MERGE)
        said = await running.end()
        assert (said.outcome, said.cause) == ("failed", "bad_node")


# --- quotas and flavors ------------------------------------------------------------------------


async def test_a_quota_that_shrinks_ends_nothing_and_holds_back_what_comes(
    team: Team, tmp_path: Path
) -> None:
    async with node_of(team, tmp_path, SLEEPS), leases(team) as running:
        first = await running.start(1, slots=2)
        await running.stage(first, Runs)
        await team.set_quota(cpu="1", memory="8Gi")
        assert (await running.cluster.quota(team.name, 1)).slots == 1
        second = await running.start(2, wait_ms_max=5_000)
        await running.stage(second, Waits)
        await asyncio.wait_for(running.tasks[-1], 300)
        (said,) = running.exits
        assert (said.token.lease, said.outcome) == (2, "not_started")
        assert isinstance(first.stage, Runs)


async def test_bad_input_a_flavor_without_labels_is_refused_where_there_are_others(
    team: Team,
) -> None:
    bare = f"{team.name}-bare"
    await team.client.create(ResourceFlavor(metadata=ObjectMeta(name=bare), spec={}))
    own = cluster_of(team)
    await team.set_quota(cpu="4", memory="8Gi", flavors=(bare,))
    assert (await own.quota(bare, 1)).slots == 4, "there is no other"
    await team.set_quota(cpu="4", memory="8Gi", flavors=(team.name, bare))
    with pytest.raises(ClusterRefused, match=rf"{bare} has no nodeLabels.*set spec.nodeLabels"):
        await own.quota(bare, 1)


# --- rights ------------------------------------------------------------------------------------


def rights() -> list[tuple[str, str, str, str]]:
    """Kind of role, group, resource and verb of all that the chart allows the agent."""
    return [
        (item["kind"], group, resource, verb)
        for item in example_objects()
        if item["kind"] in ("Role", "ClusterRole")
        for rule in item["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


@asynccontextmanager
async def account(
    team: Team, name: str, allowed: list[tuple[str, str, str, str]]
) -> AsyncIterator[AsyncClient]:
    """A client of a service account of its own, which may do this."""
    admin, namespace = team.client, team.name
    metadata = ObjectMeta(name=name, namespace=namespace)
    await admin.create(ServiceAccount(metadata=metadata))
    subjects = [Subject(kind="ServiceAccount", name=name, namespace=namespace)]
    rules: dict[str, list[PolicyRule]] = {"Role": [], "ClusterRole": []}
    for kind, group, resource, verb in allowed:
        rules[kind].append(PolicyRule(apiGroups=[group], resources=[resource], verbs=[verb]))
    wide = ObjectMeta(name=f"{namespace}-{name}")
    reference = "rbac.authorization.k8s.io"
    await admin.create(Role(metadata=metadata, rules=rules["Role"]))
    await admin.create(ClusterRole(metadata=wide, rules=rules["ClusterRole"]))
    role = RoleRef(apiGroup=reference, kind="Role", name=name)
    await admin.create(RoleBinding(roleRef=role, metadata=metadata, subjects=subjects))
    role = RoleRef(apiGroup=reference, kind="ClusterRole", name=str(wide.name))
    await admin.create(ClusterRoleBinding(roleRef=role, metadata=wide, subjects=subjects))
    request = ServiceAccountToken(metadata=ObjectMeta(), spec=TokenRequestSpec(audiences=[]))
    issued: Any = await admin.create(request, name)
    config = KubeConfig.from_file(team.plane.kubeconfig)
    config.users[config.current_context] = User(token=issued.status.token)
    client = AsyncClient(config=config, namespace=namespace, trust_env=False)
    try:
        yield client
    finally:
        await team.close()
        await client.close()


async def everything(team: Team, client: AsyncClient) -> None:
    """Do with a cluster all that an agent does, from the start."""

    async def is_empty() -> bool:  # a JobSet that is being deleted would be met again
        for name in await jobsets(team):
            await cluster_of(team).delete(name, grace_s=0)
        return not await jobsets(team)

    await eventually("nothing is left of the time before", is_empty)
    cluster = cluster_of(team, client)
    flavor = (await cluster.quota(team.name, 1)).flavor
    await cluster.look()
    request = LeaseRequest(NODE, "a1" * 16, "default", 1, "j", 1, "free", 1, MIB)
    jobset = jobset_of(request, template_of(), flavor)
    for _ in range(2):
        await cluster.create(jobset, *owned_of(request, flavor, {"tls.key": "pem"}))
    await pod_of(team)
    await cluster.look()  # its watches have begun meanwhile, or were refused
    await cluster.delete(jobset["metadata"]["name"], grace_s=0)


async def test_bad_input_each_right_that_is_missing_is_named(team: Team, tmp_path: Path) -> None:
    every = rights()
    assert len(every) > 8
    async with node_of(team, tmp_path, SLEEPS):
        async with account(team, "whole", every) as client:

            async def is_enough() -> bool:  # RBAC takes a moment to know a role
                try:
                    await everything(team, client)
                except ClusterRefused:
                    return False
                return True

            await eventually("the rights of the chart are enough", is_enough)
        for number, missing in enumerate(every):
            _, _, resource, verb = missing
            others = [right for right in every if right != missing]
            async with account(team, f"lacks-{number}", others) as client:

                async def names_it(
                    client: AsyncClient = client,
                    words: str = f'cannot {verb} resource "{resource}"',
                ) -> bool:
                    with pytest.raises(ClusterRefused) as refused:
                        await everything(team, client)
                    return words in str(refused.value)

                await eventually(f"{verb} {resource} is named", names_it)


# --- policies of the namespace -----------------------------------------------------------------


async def test_bad_input_a_namespace_without_room_for_pods_blames_the_node(team: Team) -> None:
    spec = ResourceQuotaSpec(hard={"pods": "0"})
    await team.client.create(ResourceQuota(metadata=ObjectMeta(name="none"), spec=spec))

    async def counts() -> bool:
        quota: Any = await team.client.get(ResourceQuota, "none")
        return bool(quota.status and quota.status.hard)

    await eventually("the quota counts", counts)
    async with leases(team) as running:
        lease = await running.start(stuck_ms_max=5_000)
        stuck = await running.stage(lease, Admitted)
        assert stuck.stuck == NO_POD
        said = await running.end()
        assert (said.outcome, said.cause) == ("failed", "bad_node")


async def test_bad_input_the_message_of_a_policy_against_jobsets_is_reported(team: Team) -> None:
    words = "images come from registry.example.com alone"
    manifest = {
        "metadata": {"name": team.name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": team.name}},
                "resourceRules": [
                    {
                        "apiGroups": ["jobset.x-k8s.io"],
                        "apiVersions": ["*"],
                        "operations": ["CREATE"],
                        "resources": ["jobsets"],
                    }
                ],
            },
            "validations": [{"expression": "false", "message": words}],
        },
    }
    binding = {
        "metadata": {"name": team.name},
        "spec": {"policyName": team.name, "validationActions": ["Deny"]},
    }
    await team.client.create(ValidatingAdmissionPolicy.from_dict(manifest))
    await team.client.create(ValidatingAdmissionPolicyBinding.from_dict(binding))
    flavor = (await cluster_of(team).quota(team.name, 1)).flavor

    async def is_refused() -> str:
        request = LeaseRequest(NODE, "a1" * 16, "default", 1, "j", 1, "free", 1, MIB)
        try:
            await team.client.create(
                JobSet(jobset_of(request, template_of(), flavor)), dry_run=True
            )
        except Exception as error:
            return str(error)
        return ""

    assert words in await eventually("the policy counts", is_refused)
    async with leases(team) as running:
        await running.start()
        said = await running.end()
        assert (said.outcome, said.cause) == ("failed", "bad_node")


# --- other versions, other installations -------------------------------------------------------


@pytest.mark.parametrize(("name", "plural"), [("JobSet", "jobsets"), ("Workload", "workloads")])
@pytest.mark.parametrize("is_served", [True, False])
async def test_bad_input_a_version_that_the_cluster_has_not_is_named(
    team: Team, monkeypatch: pytest.MonkeyPatch, name: str, plural: str, is_served: bool
) -> None:
    group = api_info(getattr(kubernetes, name)).resource.group
    wanted = (group if is_served else f"no.{group}", "v9")
    kind = create_namespaced_resource(*wanted, name, plural)
    monkeypatch.setattr(kubernetes, name, kind)
    with pytest.raises(ClusterRefused, match=f"does not serve {'/'.join(wanted)}: install JobSet"):
        await cluster_of(team).look()


async def test_bad_input_two_installations_with_one_name_of_a_node(
    team: Team, tmp_path: Path
) -> None:
    async with node_of(team, tmp_path, SLEEPS), leases(team) as running:
        lease = await running.start()
        await running.stage(lease, Runs)
        other = "https://cluster-h100.other.svc:8443"
        with pytest.raises(NodeNameTaken, match=rf"{lease.name} .* at {AGENT_URL}: give each"):
            await Sweeper(cluster_of(team), CLOCK, other, team.name).sweep()
        watch = OrphanWatch(cluster_of(team), type(running.links)(), CLOCK, other)
        assert await watch.sweep() == 0
        assert isinstance(lease.stage, Runs)
        assert await jobsets(team) == [lease.name]


async def test_two_agents_with_names_of_their_own_share_a_namespace(
    team: Team, tmp_path: Path
) -> None:
    async with node_of(team, tmp_path, SLEEPS), leases(team) as running:
        lease = await running.start()
        await running.stage(lease, Runs)
        other = cluster_of(team, agent="another")
        assert await Sweeper(other, CLOCK, "https://another:8443", team.name).sweep() == 0
        assert await jobsets(team) == [lease.name]
