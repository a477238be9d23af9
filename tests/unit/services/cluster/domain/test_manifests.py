"""Manifests of a lease, and the rights of its pod."""

from dataclasses import replace
from typing import Any

import pytest

from services.cluster.domain.manifests import (
    Flavor,
    LeaseRequest,
    PodTemplate,
    jobset_of,
    name_of,
    owned_of,
)

REQUEST = LeaseRequest(
    agent="k8s",
    incarnation="0123456789abcdef",
    pool="default",
    lease=7,
    job_id="ftjob-1",
    attempt=2,
    lane="premium",
    slots=4,
    memory_bytes=1 << 30,
)
TEMPLATE = PodTemplate(image="tunery:1", queue="team-a", agent_url="https://agent:8443")
H100 = Flavor(
    "h100",
    {"accelerator": "h100"},
    (
        {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
        {"key": "team", "value": "a", "effect": "NoExecute"},
    ),
)


def pod_of(request: LeaseRequest = REQUEST, template: PodTemplate = TEMPLATE) -> dict[str, Any]:
    (replicated,) = jobset_of(request, template, H100)["spec"]["replicatedJobs"]
    pod: dict[str, Any] = replicated["template"]["spec"]["template"]["spec"]
    return pod


def test_a_lease_is_a_suspended_jobset_that_is_never_restarted() -> None:
    jobset = jobset_of(REQUEST, TEMPLATE, H100)
    assert jobset["metadata"]["name"] == "t-default-7-01234567"
    labels = jobset["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "team-a"
    assert labels["kueue.x-k8s.io/priority-class"] == "tunery-premium"
    assert (labels["tunery.dev/node"], labels["tunery.dev/lease"]) == ("k8s", "7")
    spec = jobset["spec"]
    assert spec["suspend"] is True
    assert spec["failurePolicy"] == {"maxRestarts": 0}
    (replicated,) = spec["replicatedJobs"]
    job = replicated["template"]["spec"]
    assert (replicated["replicas"], job["parallelism"], job["backoffLimit"]) == (1, 1, 0)
    assert pod_of()["restartPolicy"] == "Never"


def test_a_pod_gets_what_its_slots_are_and_nothing_more() -> None:
    (container,) = pod_of()["containers"]
    limits = container["resources"]["limits"]
    assert limits == {"cpu": "16", "memory": str(128 << 30), "nvidia.com/gpu": "4"}
    assert container["resources"]["requests"] == limits


@pytest.mark.parametrize(("estimate", "limit"), [(1 << 20, 1 << 30), (3 << 30, 3 << 30)])
def test_without_accelerators_the_memory_limit_is_that_of_the_plan(
    estimate: int, limit: int
) -> None:
    template = replace(TEMPLATE, resource="cpu", cpus_per_slot=1, memory_per_slot_bytes=1 << 30)
    (container,) = pod_of(replace(REQUEST, memory_bytes=estimate), template)["containers"]
    assert container["resources"]["limits"] == {"cpu": "4", "memory": str(4 * limit)}


def test_security_a_pod_has_no_account_no_root_and_no_rights() -> None:
    pod = pod_of(template=replace(TEMPLATE, runtime_class="gvisor", user_namespaces=True))
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert (pod["runtimeClassName"], pod["hostUsers"]) == ("gvisor", False)
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {each["name"] for each in container["env"]} == {
        *("TUNERY_POD_AGENT_URL", "TUNERY_POD_LINK_DIR", "TUNERY_POD_WORK_DIR", "TUNERY_CONFINE"),
    }


def test_a_pod_runs_where_its_flavor_is() -> None:
    pod = pod_of()
    assert pod["nodeSelector"] == {"accelerator": "h100"}
    *of_flavor, not_ready, unreachable = pod["tolerations"]
    assert {each["tolerationSeconds"] for each in (not_ready, unreachable)} == {60}
    assert of_flavor == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "team", "operator": "Equal", "effect": "NoExecute", "value": "a"},
    ]


@pytest.mark.parametrize(
    ("changes", "source"),
    [
        (
            {"bases_claim": "bases"},
            {"persistentVolumeClaim": {"claimName": "bases", "readOnly": True}},
        ),
        (
            {"bases_image": "registry.example.com/bases@sha256:00"},
            {
                "image": {
                    "reference": "registry.example.com/bases@sha256:00",
                    "pullPolicy": "IfNotPresent",
                }
            },
        ),
    ],
)
def test_bases_come_from_a_claim_or_an_image_and_are_only_read(
    changes: dict[str, Any], source: dict[str, Any]
) -> None:
    pod = pod_of(template=replace(TEMPLATE, **changes))
    assert {"name": "bases", **source} in pod["volumes"]
    mounts = {each["name"]: each for each in pod["containers"][0]["volumeMounts"]}
    assert (mounts["bases"]["mountPath"], mounts["bases"]["readOnly"]) == ("/bases", True)


@pytest.mark.parametrize(
    ("pool", "name"),
    [
        ("default", "t-default-7-01234567"),
        ("EU West/2", "t-eu-west-2-7-01234567"),
        ("ü", "t-pool-7-01234567"),
        ("p" * 80, f"t-{'p' * 16}-7-01234567"),
    ],
)
def test_names_are_names_of_kubernetes_for_every_pool(pool: str, name: str) -> None:
    assert name_of(replace(REQUEST, pool=pool)) == name
    # JobSet appends the names of its jobs and pods, and 63 characters are what a label holds.
    assert len(f"{name_of(replace(REQUEST, pool=pool, lease=10**9))}-lease-0-0-abcde") < 63


def test_another_incarnation_has_another_name() -> None:
    assert name_of(REQUEST) != name_of(replace(REQUEST, incarnation="f" * 32))


def test_security_only_pods_of_a_lease_reach_each_other_from_before_the_first_starts() -> None:
    name = name_of(REQUEST)
    policy, secret = owned_of(REQUEST, H100, {"tls.key": "pem"})
    for each in (policy, secret):
        (owner,) = each["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("JobSet", name)
    own = {"podSelector": {"matchLabels": {"jobset.sigs.k8s.io/jobset-name": name}}}
    rules = {"policyTypes": ["Ingress"], "ingress": [{"from": [own]}]}
    assert policy["spec"] == own | rules
    assert secret["stringData"] == {"tls.key": "pem"}
    mounted = [each["secret"]["secretName"] for each in pod_of()["volumes"] if "secret" in each]
    assert mounted == [secret["metadata"]["name"]], "no pod starts without it"
