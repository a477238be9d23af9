"""The agent of a cluster in the chart: its rights are those it uses, its leases reach little."""

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

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
from tests.infra.chart import RELEASE, example_objects, objects_of, rendered
from tests.infra.variables import FLAVOR

LEASES: Final = "tunery-leases"  # namespace
AGENT: Final = f"{RELEASE}-cluster-{FLAVOR}"
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
        node_id=read["TUNERY_NODE_ID"],
        incarnation="0123456789",
        pool="default",
        lease=1,
        job_id="ftjob-1",
        attempt=1,
        lane=lane,
        slots=1,
        memory_bytes=1,
    )
    return jobset_of(request, template, Flavor(read["TUNERY_CLUSTER_FLAVOR"], {}))


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
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert policy["spec"]["ingress"] == []
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


def test_review2_p14_each_flavor_is_a_node_with_an_agent_of_its_own() -> None:
    flavors = [
        {"name": "h100", "queue": "tunery", "flavor": "h100", "deviceMemoryBytes": 80 << 30},
        {
            "name": "a100",
            "queue": "spot",
            "flavor": "a100-spot",
            "deviceMemoryBytes": 40 << 30,
            "env": {"TUNERY_NODE_POOL": "spot", "TUNERY_CLUSTER_GRACE_S": "30"},
        },
    ]
    objects = list(objects_of(rendered({"cluster": {"flavors": flavors}})))
    agents = [
        item["spec"]
        for item in objects
        if item["kind"] == "Deployment" and "-cluster-" in item["metadata"]["name"]
    ]
    selectors = [agent["selector"]["matchLabels"] for agent in agents]
    assert selectors[0] != selectors[1]
    read = [
        {each["name"]: each["value"] for each in agent["template"]["spec"]["containers"][0]["env"]}
        for agent in agents
    ]
    for each, flavor in zip(read, flavors, strict=True):
        assert each["TUNERY_NODE_ID"] == flavor["name"]
        assert each["TUNERY_CLUSTER_QUEUE"] == flavor["queue"]
        assert each["TUNERY_CLUSTER_FLAVOR"] == flavor["flavor"]
        assert each["TUNERY_CLUSTER_DEVICE_MEMORY_BYTES"] == str(flavor["deviceMemoryBytes"])
    assert "TUNERY_NODE_POOL" not in read[0]
    assert read[1]["TUNERY_NODE_POOL"] == "spot"
    secrets = [
        source["secretRef"]["name"]
        for agent in agents
        for source in agent["template"]["spec"]["containers"][0]["envFrom"]
    ]
    assert secrets == ["tunery-shared", "tunery-node-h100", "tunery-shared", "tunery-node-a100"]
