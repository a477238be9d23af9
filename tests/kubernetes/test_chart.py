"""The chart on a real API server: every object is valid, and an installation rolls out."""

import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio
import yaml
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import Secret

from services.cluster.domain.manifests import Flavor, LeaseRequest, jobset_of
from tests.infra.chart import DAEMONSET, RELEASE, objects_of, rendered, workloads
from tests.kubernetes.conftest import Team
from tests.kubernetes.crds import crds_of_others
from tests.kubernetes.leases import MIB, SLEEPS, template_of
from tests.kubernetes.waiting import eventually
from tests.processes import ROOT
from tests.repo.metrics import declared
from tunery.local.kubernetes.cluster import KubernetesServers, established
from tunery.local.kubernetes.kubelet import kubelet

pytestmark = pytest.mark.timeout(1_200)

LEASES: Final = "tunery-leases"
OPTIONS: Final[dict[str, Any]] = {
    "gateway": {
        "ingress": {"enabled": True, "host": "tunery.example.com", "tlsSecret": "tls"},
        "httpRoute": {
            "enabled": True,
            "parentRefs": [{"name": "public"}],
            "hostnames": ["tunery.example.com"],
        },
        "autoscaling": {"enabled": True},
    },
    "engine": {"ephemeral": True},
    "monitoring": {"operator": True, "dashboards": True},
    "services": {"exporter": {"replicas": 1}},
    "cluster": {
        "queues": [
            {
                "name": "tunery",
                "cohort": "research",
                "flavors": [
                    {
                        "name": name,
                        "nodeLabels": {"gpu": name},
                        "nodeTaints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}],
                        "quota": {"cpu": 128, "memory": "1Ti", "nvidia.com/gpu": gpus},
                    }
                    for name, gpus in (("h100", 16), ("a100", 8))
                ],
                "provisioning": {
                    "className": "check-capacity.autoscaling.x-k8s.io",
                    "managedResources": ["nvidia.com/gpu"],
                    "flavors": ["a100"],
                },
            }
        ],
    },
}
Json = dict[str, Any]


@dataclass
class Server:
    """The API server, to which manifests of any kind are applied. It refuses unknown fields."""

    client: httpx.AsyncClient
    kinds: dict[str, dict[str, Json]] = field(default_factory=dict)

    async def apply(self, manifest: Json, *, dry_run: bool = False) -> Json:
        """Apply one object on the server; the object as it is then."""
        version, metadata = manifest["apiVersion"], manifest["metadata"]
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if version not in self.kinds:
            listed = await eventually(f"{version} is served", partial(self._resources, base))
            self.kinds[version] = {each["kind"]: each for each in listed if "/" not in each["name"]}
        resource = self.kinds[version][manifest["kind"]]
        scope = f"/namespaces/{metadata['namespace']}" if resource["namespaced"] else ""
        params = {"fieldManager": "helm", "force": "true", "fieldValidation": "Strict"}
        reply = await self.client.patch(
            f"{base}{scope}/{resource['name']}/{metadata['name']}",
            params=params | ({"dryRun": "All"} if dry_run else {}),
            content=json.dumps(manifest),
            headers={"Content-Type": "application/apply-patch+yaml"},
        )
        assert reply.is_success, f"{manifest['kind']} {metadata['name']}: {reply.text}"
        applied: Json = reply.json()
        return applied

    async def _resources(self, base: str) -> list[Json]:
        """Resources of a group and version, once it is served: that takes a CRD a moment."""
        reply = await self.client.get(base)
        return list(reply.json()["resources"]) if reply.is_success else []


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server(plane: KubernetesServers) -> AsyncIterator[Server]:
    """The API server with the CRDs of all that a manifest of ours may name."""
    async with plane.administrator() as client:
        running = Server(client)
        for path in crds_of_others():
            for crd in yaml.load_all(path.read_text(), yaml.CSafeLoader):
                await running.apply(crd)
        await established(client)
        for name in (RELEASE, LEASES):
            await running.apply(namespace(name))
        yield running


def namespace(name: str) -> Json:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def in_namespace(objects: Iterable[Json], name: str) -> Iterable[Json]:
    """Objects with the namespace in which Helm creates what names none."""
    for item in objects:
        yield {**item, "metadata": {"namespace": name, **item["metadata"]}}


def volume_for(claim: Json) -> Json:
    """A volume that this claim alone is bound to."""
    metadata, spec = claim["metadata"], claim["spec"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{metadata['namespace']}-{metadata['name']}"},
        "spec": {
            "accessModes": spec["accessModes"],
            "capacity": spec["resources"]["requests"],
            "storageClassName": spec["storageClassName"],
            "claimRef": {"namespace": metadata["namespace"], "name": metadata["name"]},
            "hostPath": {"path": "/nothing"},
        },
    }


@pytest.mark.parametrize("changes", [{}, DAEMONSET, OPTIONS], ids=["example", "daemonset", "all"])
async def test_the_api_server_takes_every_object_of_the_chart(
    server: Server, changes: Mapping[str, Any]
) -> None:
    objects = list(in_namespace(objects_of(rendered(changes)), RELEASE))
    assert len(objects) > 30
    for item in objects:
        await server.apply(item, dry_run=True)


async def test_the_api_server_takes_leases_as_the_page_makes_them_for_other_queues(
    server: Server,
) -> None:
    page = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(apiVersion: batch\.volcano.*?)```", page, re.DOTALL)
    volcano, trainer = yaml.safe_load_all(block)
    request = LeaseRequest("h100", "a1" * 16, "default", 1, "ftjob-1", 1, "free", 1, MIB)
    jobset = jobset_of(request, template_of(bases_claim="bases"), Flavor("h100", {"gpu": "h100"}))
    (lease,) = jobset["spec"]["replicatedJobs"]
    volcano["spec"]["tasks"][0]["template"] = lease["template"]["spec"]["template"]
    runtime = {
        "apiVersion": trainer["apiVersion"],
        "kind": trainer["spec"]["runtimeRef"]["kind"],
        "metadata": {"name": trainer["spec"]["runtimeRef"]["name"], "namespace": LEASES},
        "spec": {"template": {"spec": {"replicatedJobs": jobset["spec"]["replicatedJobs"]}}},
    }
    for manifest in (volcano, runtime, trainer):
        accepted = await server.apply(manifest, dry_run=True)
        assert accepted["metadata"]["name"] == manifest["metadata"]["name"]


async def test_the_api_server_takes_the_scaler_of_the_page(server: Server) -> None:
    page = (ROOT / "docs" / "how-to" / "nodes.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(apiVersion: keda.*?)```", page, re.DOTALL)
    scaler = yaml.safe_load(block)
    await server.apply(scaler, dry_run=True)
    (trigger,) = scaler["spec"]["triggers"]
    named = set(re.findall(r"tunery_[a-z_]+", trigger["metadata"]["query"]))
    assert named
    assert named <= declared().keys()


async def test_an_installation_rolls_out(server: Server, team: Team, tmp_path: Path) -> None:
    release, client = team.name, team.client  # its namespace has PodSecurity `restricted`
    leases = f"{release}-leases"
    labels = {"tunery.dev/flavor": release}
    changes = {
        "pods": {"nodeSelector": labels},  # what is left of it goes to no node of another test
        "engine": {"enabled": False},  # the kubelet of the tests has pods of one container
        "cluster": {"namespace": leases},
        "storage": {
            "keys": {"storageClass": "own"},
            "bases": {"storageClass": "own", "existingClaim": ""},
        },
    }
    objects = list(in_namespace(objects_of(rendered(changes, release)), release))
    await server.apply(namespace(leases))
    secrets = {
        volume["secret"]["secretName"]
        for _, pod in workloads(tuple(objects))
        for volume in pod["spec"]["volumes"]
        if "secret" in volume
    }
    for name in secrets:
        await client.create(Secret(metadata=ObjectMeta(name=name), stringData={"file": "words"}))
    for item in objects:
        if item["kind"] == "PersistentVolumeClaim":
            await server.apply(volume_for(item))
    async with kubelet(client, release, tmp_path, labels, {"cpu": "64", "memory": "256Gi"}, SLEEPS):
        for item in objects:
            await server.apply(item)
        wanted = {
            item["metadata"]["name"]: item["spec"]["replicas"]
            for item in objects
            if item["kind"] == "Deployment"
        }
        assert wanted[f"{release}-gateway"] == 2
        assert wanted[f"{release}-cluster-k8s"] == 1

        async def is_available() -> bool:
            listed = [each async for each in client.list(Deployment)]
            ready = {
                each.metadata.name: each.status.availableReplicas or 0
                for each in listed
                if each.status
            }
            return ready == wanted

        await eventually("all replicas are available", is_available)
