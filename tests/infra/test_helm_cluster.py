"""The agent of a cluster in the chart: its rights are those it uses, its leases reach little."""

import ast
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from lightkube.core.resource import GlobalResource, api_info

from schemas.account import LANES
from services.cluster.adapters import kubernetes
from services.cluster.domain.manifests import (
    NODE,
    PRIORITY,
    Flavor,
    LeaseRequest,
    PodTemplate,
    jobset_of,
)
from services.cluster.settings import ClusterSettings
from tests.infra.chart import RELEASE, example_objects, objects_of, rendered
from tests.infra.variables import CLUSTER_AGENT
from tunery.platform.settings import load

LEASES: Final = "tunery-leases"  # namespace
AGENT: Final = f"{RELEASE}-cluster-{CLUSTER_AGENT}"
Rights = dict[tuple[str, str], set[str]]  # verbs by group and resource


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [item for item in example_objects() if item["kind"] == kind]


def variables() -> dict[str, str]:
    (pod,) = [each for each in of_kind("Deployment") if each["metadata"]["name"] == AGENT]
    (container,) = pod["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"]}


def jobset(lane: Any) -> dict[str, Any]:
    """A lease of the agent that the chart starts."""
    read = variables()
    template = PodTemplate(
        image=read["TUNERY_CLUSTER_IMAGE"],
        queue=read["TUNERY_CLUSTER_QUEUE"],
        agent_url="https://agent",
        priority_prefix=read["TUNERY_CLUSTER_PRIORITY_PREFIX"],
    )
    request = LeaseRequest(
        agent=read["TUNERY_NODE_ID"],
        incarnation="0123456789",
        pool="default",
        lease=1,
        job_id="ftjob-1",
        attempt=1,
        lane=lane,
        slots=1,
        memory_bytes=1,
    )
    (flavor,) = json.loads(read["TUNERY_CLUSTER_FLAVORS"])
    return jobset_of(request, template, Flavor(flavor, {}))


def test_the_agent_runs_in_the_image_without_torch() -> None:
    program = "import sys, services.cluster.app; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == 0


# --- rights ------------------------------------------------------------------------------------


def calls_of_the_client() -> Iterator[tuple[str, str]]:
    """Verb and class of each call at Kubernetes, as of `self._client.get(LocalQueue, name)`."""
    tree = ast.parse(Path(kubernetes.__file__).read_text(encoding="utf-8"))
    for call in ast.walk(tree):
        match call:
            case ast.Call(ast.Attribute(ast.Attribute(attr="_client"), verb), args=[first, *_]):
                names = [each.id for each in ast.walk(first) if isinstance(each, ast.Name)]
                yield verb, names[0]
            case _:
                pass


def used() -> dict[str, Rights]:
    """Rights that the client needs: in a namespace (Role), and in the cluster (ClusterRole)."""
    rights: dict[str, Rights] = {"Role": defaultdict(set), "ClusterRole": defaultdict(set)}
    for verb, name in calls_of_the_client():
        resource = getattr(kubernetes, name)
        info = api_info(resource)
        role = "ClusterRole" if issubclass(resource, GlobalResource) else "Role"
        rights[role][info.resource.group, info.plural].add(verb)
    return rights


def test_the_agent_has_the_rights_that_its_client_uses_and_no_others() -> None:
    for kind, rights in used().items():
        assert rights
        (role,) = of_kind(kind)
        granted: Rights = defaultdict(set)
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    granted[group, resource] |= set(rule["verbs"])
        assert granted == rights
        (binding,) = of_kind(f"{kind}Binding")
        assert binding["roleRef"]["name"] == role["metadata"]["name"]
        assert binding["roleRef"]["kind"] == kind
        assert [(each["name"], each["namespace"]) for each in binding["subjects"]] == [
            (f"{RELEASE}-cluster", RELEASE)
        ]
        assert role["metadata"].get("namespace") == (LEASES if kind == "Role" else None)


def test_two_installations_in_a_cluster_share_no_name_of_its_scope() -> None:
    for item in (*of_kind("ClusterRole"), *of_kind("ClusterRoleBinding")):
        assert item["metadata"]["name"].startswith(f"{RELEASE}-{RELEASE}-")  # release, namespace


# --- leases ------------------------------------------------------------------------------------


def test_each_lane_has_the_priority_class_that_leases_name() -> None:
    classes = {item["metadata"]["name"]: item["value"] for item in of_kind("WorkloadPriorityClass")}
    named = [jobset(lane)["metadata"]["labels"][PRIORITY] for lane in LANES]
    assert sorted(named) == sorted(classes)
    values = [classes[name] for name in named]
    assert values == sorted(values, reverse=True), "LANES begins with the highest"
    group, version = kubernetes.KUEUE
    assert {item["apiVersion"] for item in of_kind("WorkloadPriorityClass")} == {
        f"{group}/{version}"
    }


def test_pods_reach_their_agent_at_the_service_that_its_certificate_names() -> None:
    read = variables()
    (service,) = [each for each in of_kind("Service") if each["metadata"]["name"] == AGENT]
    assert read["TUNERY_CLUSTER_POD_HOST"] == f"{AGENT}.{RELEASE}.svc"
    assert [str(each["port"]) for each in service["spec"]["ports"]] == [
        read["TUNERY_CLUSTER_POD_PORT"]
    ]
    (deployment,) = [each for each in of_kind("Deployment") if each["metadata"]["name"] == AGENT]
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}


def test_a_lease_reaches_its_agent_object_storage_and_the_dns_alone() -> None:
    policies = {item["metadata"]["name"]: item for item in of_kind("NetworkPolicy")}
    policy = policies[f"{RELEASE}-{RELEASE}-leases"]
    (selected,) = policy["spec"]["podSelector"]["matchExpressions"]
    (replicated,) = jobset("free")["spec"]["replicatedJobs"]
    labels = replicated["template"]["spec"]["template"]["metadata"]["labels"]
    assert selected["key"] == NODE
    assert labels[NODE] in selected["values"]
    assert policy["metadata"]["namespace"] == variables()["TUNERY_CLUSTER_NAMESPACE"] == LEASES
    assert policy["spec"]["policyTypes"] == ["Egress"], "who reaches it says a policy of its own"
    dns, agent, storage = policy["spec"]["egress"]
    assert {each["port"] for each in dns["ports"]} == {53}
    assert storage == {
        "to": [{"ipBlock": {"cidr": "10.20.0.30/32"}}],
        "ports": [{"protocol": "TCP", "port": 443}],
    }
    (to_agent,) = agent["to"]
    (open_to,) = policies[f"{RELEASE}-cluster"]["spec"]["ingress"]
    assert agent["ports"] == open_to["ports"]
    assert to_agent["podSelector"] == policies[f"{RELEASE}-cluster"]["spec"]["podSelector"]
    (who,) = open_to["from"]
    assert who["podSelector"] == policy["spec"]["podSelector"]


def test_review2_p14_an_agent_has_the_flavors_of_its_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agents: list[dict[str, Any]] = [
        {
            "name": "k8s",
            "queue": "tunery",
            "flavors": [
                {"name": "h100", "deviceMemoryBytes": 80 << 30, "runtimeClass": "gvisor"},
                {
                    "name": "a100-spot",
                    "deviceMemoryBytes": 40 << 30,
                    "accelerator": "a100",
                    "spot": True,
                    "cpusPerSlot": 8,
                    "memoryPerSlotBytes": 64 << 30,
                },
            ],
        },
        {
            "name": "lab",
            "queue": "spot",
            "flavors": [{"name": "l4", "deviceMemoryBytes": 24 << 30}],
            "env": {"TUNERY_NODE_POOL": "spot", "TUNERY_CLUSTER_GRACE_S": "30"},
        },
    ]
    objects = list(objects_of(rendered({"cluster": {"agents": agents}})))
    deployments = [
        item["spec"]
        for item in objects
        if item["kind"] == "Deployment" and "-cluster-" in item["metadata"]["name"]
    ]
    selectors = [each["selector"]["matchLabels"] for each in deployments]
    assert selectors[0] != selectors[1]
    containers = [each["template"]["spec"]["containers"][0] for each in deployments]
    read = [{each["name"]: each["value"] for each in container["env"]} for container in containers]
    for each, agent in zip(read, agents, strict=True):
        assert each["TUNERY_NODE_ID"] == agent["name"]
        assert each["TUNERY_CLUSTER_QUEUE"] == agent["queue"]
        for name, value in each.items():
            if name.startswith("TUNERY_CLUSTER_"):
                monkeypatch.setenv(name, value)
        flavors = load(ClusterSettings).flavors
        assert list(flavors) == sorted(known["name"] for known in agent["flavors"])
    assert (flavors["l4"].device_memory_bytes, flavors["l4"].spot) == (24 << 30, False)
    known = json.loads(read[0]["TUNERY_CLUSTER_FLAVORS"])
    assert known["a100-spot"] == {
        "device_memory_bytes": 40 << 30,
        "accelerator": "a100",
        "spot": True,
        "cpus_per_slot": 8,
        "memory_per_slot_bytes": 64 << 30,
    }
    assert known["h100"] == {"device_memory_bytes": 80 << 30, "runtime_class": "gvisor"}
    assert "TUNERY_NODE_POOL" not in read[0]
    assert read[1]["TUNERY_NODE_POOL"] == "spot"
    secrets = [
        source["secretRef"]["name"] for container in containers for source in container["envFrom"]
    ]
    assert secrets == ["tunery-shared", "tunery-node-k8s", "tunery-shared", "tunery-node-lab"]


def test_queues_that_the_chart_makes_are_those_of_its_agents() -> None:
    """The API server takes them in tests/kubernetes."""
    flavors = [
        {"name": "h100", "nodeLabels": {"gpu": "h100"}, "quota": {"nvidia.com/gpu": 16, "cpu": 64}},
        {"name": "a100", "nodeLabels": {"gpu": "a100"}, "quota": {"nvidia.com/gpu": 8, "cpu": 64}},
    ]
    provisioning = {
        "className": "check-capacity.autoscaling.x-k8s.io",
        "managedResources": ["nvidia.com/gpu"],
        "flavors": ["a100"],
    }
    queue = {"name": "tunery", "flavors": flavors, "provisioning": provisioning}

    def objects_made(queue: dict[str, Any]) -> dict[str, dict[str, Any]]:
        objects = objects_of(rendered({"cluster": {"queues": [queue]}}))
        return {item["kind"]: item for item in objects if "kueue" in item["apiVersion"]}

    kinds = objects_made(queue)
    local, wide = kinds["LocalQueue"], kinds["ClusterQueue"]
    assert local["metadata"]["name"] == variables()["TUNERY_CLUSTER_QUEUE"]
    assert local["metadata"]["namespace"] == LEASES
    assert local["spec"]["clusterQueue"] == wide["metadata"]["name"]
    (check,) = wide["spec"]["admissionChecksStrategy"]["admissionChecks"]
    assert check == {"name": kinds["AdmissionCheck"]["metadata"]["name"], "onFlavors": ["a100"]}
    parameters = kinds["AdmissionCheck"]["spec"]["parameters"]
    assert parameters["name"] == kinds["ProvisioningRequestConfig"]["metadata"]["name"]
    (group,) = wide["spec"]["resourceGroups"]
    assert group["coveredResources"] == ["cpu", "nvidia.com/gpu"]
    plain = objects_made({"name": "tunery", "flavors": flavors})
    assert kinds.keys() - plain.keys() == {"AdmissionCheck", "ProvisioningRequestConfig"}
    assert "admissionChecksStrategy" not in plain["ClusterQueue"]["spec"]
