"""Manifests of a lease: the JobSet that Kueue admits, the rights of its pod, and who reaches it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from schemas.account import Lane
from tunery.confinement.confined import ConfineMode

GROUP: Final = "tunery.dev"  # of our labels and annotations
# agent, and flavor, whose node a lease is on
NODE, FLAVOR = f"{GROUP}/node", f"{GROUP}/flavor"
INCARNATION: Final = f"{GROUP}/incarnation"
LEASE, JOB, ATTEMPT = f"{GROUP}/lease", f"{GROUP}/job", f"{GROUP}/attempt"
AGENT: Final = f"{GROUP}/agent-url"  # annotation: which agent a lease is of
QUEUE, PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
REPLICATED: Final = "lease"
POOL_CHARACTERS_MAX: Final = 16  # with number and incarnation a name has to fit into 63
INCARNATION_CHARACTERS: Final = 8
USER: Final = 65_532  # of images without root
WORK, LINK = "/work", "/run/tunery/link"  # folders in the pod
AGENT_URL: Final = "TUNERY_POD_AGENT_URL"
LINK_DIR: Final = "TUNERY_POD_LINK_DIR"
WORK_DIR: Final = "TUNERY_POD_WORK_DIR"
# A node that does not answer is given up after this; Kubernetes' own default is five minutes.
LOST: Final = tuple(
    {
        "key": f"node.kubernetes.io/{state}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 60,
    }
    for state in ("not-ready", "unreachable")
)
KEPT_S: Final = 3_600  # after its end, where the agent cannot delete it
MODULE: Final = "services.cluster.pod"
Json = dict[str, Any]


@dataclass(frozen=True)
class Flavor:
    """Labels and taints of the nodes of a ResourceFlavor of Kueue."""

    name: str
    labels: dict[str, str]  # labels of the nodes; a pod that selects them gets this flavor
    taints: tuple[Json, ...] = ()  # taints that a pod has to tolerate, each as in a Node


@dataclass(frozen=True)
class PodTemplate:
    """Settings of the operator that all pods of an agent share."""

    image: str
    queue: str
    agent_url: str
    # name of the accelerators, such as "nvidia.com/gpu"; "cpu": there are none
    resource: str = "nvidia.com/gpu"
    # cpus_per_slot, memory_per_slot_bytes: what a pod gets of the machine for each slot
    cpus_per_slot: int = 4
    memory_per_slot_bytes: int = 32 << 30
    work_bytes: int = 64 << 30  # limit of the work folder
    grace_s: int = 60  # time from SIGTERM to SIGKILL, in which a checkpoint is written
    # ReadOnlyMany claim with the base models, or an image with nothing else, that is mounted at
    # `bases_dir`; both empty: `image` has them
    bases_claim: str = ""
    bases_image: str = ""
    bases_dir: str = "/bases"
    runtime_class: str = ""  # such as "gvisor"; empty: the cluster's own
    user_namespaces: bool = False  # whether nodes can give a pod users of its own
    # what the names of the WorkloadPriorityClasses, one for each lane, begin with
    priority_prefix: str = "tunery-"
    confine: ConfineMode = "require"  # confinement of the training inside the pod, as on a node


@dataclass(frozen=True)
class LeaseRequest:
    """Identity of a lease and the resources that it requests."""

    agent: str  # name that the agent of the node proves
    incarnation: str
    pool: str
    lease: int
    job_id: str
    attempt: int
    lane: Lane
    slots: int
    memory_bytes: int  # memory that one slot needs by the plan, on a machine without accelerators


def name_of(request: LeaseRequest) -> str:
    """Return the name of all objects of a lease.

    It has the incarnation: an agent that starts anew, or a cluster that comes back from a backup,
    cannot take the JobSet of another one for its own.
    """
    pool = re.sub(r"[^a-z0-9]+", "-", request.pool.lower())[:POOL_CHARACTERS_MAX].strip("-")
    return f"t-{pool or 'pool'}-{request.lease}-{request.incarnation[:INCARNATION_CHARACTERS]}"


def labels_of(request: LeaseRequest, flavor: Flavor) -> dict[str, str]:
    """Labels by which an agent finds its own objects, and a person those of a lease."""
    return {
        "app.kubernetes.io/managed-by": "tunery",
        NODE: request.agent,
        FLAVOR: flavor.name,
        INCARNATION: request.incarnation,
        LEASE: str(request.lease),
    }


def jobset_of(request: LeaseRequest, template: PodTemplate, flavor: Flavor) -> Json:
    """Return the JobSet of a lease: suspended until Kueue admits it, and never restarted.

    The decider of the job retries with another lease.
    """
    name, labels = name_of(request), labels_of(request, flavor)
    annotations = {
        JOB: request.job_id,
        ATTEMPT: str(request.attempt),
        AGENT: template.agent_url,
    }
    pod = {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": _pod_spec(request, template, flavor),
    }
    job = {
        "parallelism": 1,
        "completions": 1,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": pod,
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": name,
            "labels": {
                **labels,
                QUEUE: template.queue,
                PRIORITY: f"{template.priority_prefix}{request.lane}",
            },
            "annotations": annotations,
        },
        "spec": {
            "suspend": True,
            "failurePolicy": {"maxRestarts": 0},
            "ttlSecondsAfterFinished": KEPT_S,
            "replicatedJobs": [{"name": REPLICATED, "replicas": 1, "template": {"spec": job}}],
        },
    }


def owned_of(request: LeaseRequest, flavor: Flavor, files: Mapping[str, str]) -> tuple[Json, Json]:
    """Return NetworkPolicy and Secret of a lease, which its JobSet owns.

    Pods of a lease are reached by each other alone. None starts without the Secret, which has their
    certificate: created after the policy, it keeps them from starting before that stands.
    The owner's uid is missing: the cluster gives it.

    files: of the Secret
    """
    name = name_of(request)
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": name}
    metadata = {"name": name, "labels": labels_of(request, flavor), "ownerReferences": [owner]}
    pods = {"podSelector": {"matchLabels": {JOBSET_NAME: name}}}
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata,
        "spec": {**pods, "policyTypes": ["Ingress"], "ingress": [{"from": [pods]}]},
    }
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "immutable": True,
        "stringData": dict(files),
    }
    return policy, secret


def _pod_spec(request: LeaseRequest, template: PodTemplate, flavor: Flavor) -> Json:
    mounts = [
        {"name": "work", "mountPath": WORK},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108  # of the pod's own
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108  # likewise: ranks share it
        {"name": "link", "mountPath": LINK, "readOnly": True},
    ]
    volumes: list[Json] = [
        {"name": "work", "emptyDir": {"sizeLimit": str(template.work_bytes)}},
        {"name": "tmp", "emptyDir": {"sizeLimit": str(1 << 30)}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        {"name": "link", "secret": {"secretName": name_of(request), "defaultMode": 0o440}},
    ]
    if template.bases_claim or template.bases_image:
        claim = {"claimName": template.bases_claim, "readOnly": True}
        source: Json = {"persistentVolumeClaim": claim}
        if template.bases_image:
            source = {"image": {"reference": template.bases_image, "pullPolicy": "IfNotPresent"}}
        volumes.append({"name": "bases", **source})
        mounts.append({"name": "bases", "mountPath": template.bases_dir, "readOnly": True})
    container: Json = {
        "name": "attempt",
        "image": template.image,
        "command": ["python", "-m", MODULE],
        "env": [
            {"name": AGENT_URL, "value": template.agent_url},
            {"name": LINK_DIR, "value": LINK},
            {"name": WORK_DIR, "value": WORK},
            {"name": "TUNERY_CONFINE", "value": template.confine},
        ],
        "resources": _resources(request, template),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }
    spec: Json = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": template.grace_s,
        "nodeSelector": flavor.labels,
        "tolerations": [*map(_toleration, flavor.taints), *LOST],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": volumes,
    }
    if template.runtime_class:
        spec["runtimeClassName"] = template.runtime_class
    if template.user_namespaces:
        spec["hostUsers"] = False
    return spec


def _resources(request: LeaseRequest, template: PodTemplate) -> Json:
    """Limits of a pod. What it asks for is what it gets: nothing of it is overcommitted.

    The kernel kills the whole pod where it needs more memory, and nothing else on its node.
    """
    memory = template.memory_per_slot_bytes
    if template.resource == "cpu":  # the plan's estimate is of this memory, and not of a device's
        memory = max(memory, request.memory_bytes)
    amounts = {
        "cpu": str(request.slots * template.cpus_per_slot),
        "memory": str(request.slots * memory),
    }
    if template.resource != "cpu":
        amounts[template.resource] = str(request.slots)
    return {"requests": amounts, "limits": dict(amounts)}


def _toleration(taint: Json) -> Json:
    tolerated = {"key": taint["key"], "operator": "Exists", "effect": taint.get("effect")}
    if "value" in taint:
        tolerated |= {"operator": "Equal", "value": taint["value"]}
    return {name: value for name, value in tolerated.items() if value}
