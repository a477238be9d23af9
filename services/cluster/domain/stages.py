"""The state of a lease in the cluster, from what Kueue, JobSet and the kubelet say of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from msgspec import Struct, field

from schemas.pool import AdmissionCause
from services.cluster.domain.manifests import AGENT, FLAVOR


# --- the parts of Kubernetes' objects that are read
class Condition(Struct, frozen=True, kw_only=True):
    """A condition in the status of a Workload, a JobSet or a pod."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class Metadata(Struct, frozen=True, kw_only=True):
    name: str
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple["Owner", ...] = field(default=(), name="ownerReferences")
    deletion_timestamp: str | None = field(default=None, name="deletionTimestamp")


class Owner(Struct, frozen=True, kw_only=True):
    kind: str
    name: str


class Status(Struct, frozen=True, kw_only=True):
    """Status of a Workload or a JobSet."""

    conditions: tuple[Condition, ...] = ()


class ManagedObject(Struct, frozen=True, kw_only=True):
    """A JobSet or a Workload."""

    metadata: Metadata
    status: Status = Status()

    def condition(self, kind: str) -> Condition | None:
        """Return the condition of this type; None: there is none."""
        return next((each for each in self.status.conditions if each.type == kind), None)

    def holds(self, kind: str) -> Condition | None:
        """Return the condition of this type if it is true; None: it is not, or there is none."""
        known = self.condition(kind)
        return known if known is not None and known.status == "True" else None


class ContainerWaits(Struct, frozen=True, kw_only=True):
    reason: str = ""
    message: str = ""


class Terminated(Struct, frozen=True, kw_only=True):
    exit_code: int = field(default=0, name="exitCode")
    reason: str = ""
    message: str = ""


class ContainerState(Struct, frozen=True, kw_only=True):
    waiting: ContainerWaits | None = None
    running: dict[str, object] | None = None
    terminated: Terminated | None = None


class ContainerStatus(Struct, frozen=True, kw_only=True):
    state: ContainerState = ContainerState()


class PodStatus(Struct, frozen=True, kw_only=True):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    containers: tuple[ContainerStatus, ...] = field(default=(), name="containerStatuses")


class Pod(Struct, frozen=True, kw_only=True):
    metadata: Metadata
    status: PodStatus = PodStatus()


class LeaseObjects(Struct, frozen=True, kw_only=True):
    """All objects of one lease, as one look at the cluster found them."""

    jobset: ManagedObject | None = None
    workload: ManagedObject | None = None  # Kueue's object for the JobSet; None: there is none yet
    pods: tuple[Pod, ...] = ()

    @property
    def agent_url(self) -> str | None:
        """Address of the agent whose lease it is; None: not known."""
        urls = (metadata.annotations.get(AGENT) for metadata in self._metadata)
        return next(filter(None, urls), None)

    @property
    def flavor(self) -> str | None:
        """ResourceFlavor whose node it is on; None: not known."""
        flavors = (metadata.labels.get(FLAVOR) for metadata in self._metadata)
        return next(filter(None, flavors), None)

    @property
    def _metadata(self) -> tuple[Metadata, ...]:
        owned = (*((self.jobset,) if self.jobset is not None else ()), *self.pods)
        return tuple(each.metadata for each in owned)


# --- stages
EndCause: TypeAlias = Literal["exited", "oom", "evicted", "lost", "deleted"]

# What a kubelet waits for that does not come by itself.
CANNOT_START: Final = frozenset(
    {
        *("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull"),
        *("CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
    }
)


NO_POD: Final = (
    "its Job has made no pod, which a policy or a quota of the namespace may forbid; "
    "`kubectl describe job` says why"
)


@dataclass(frozen=True)
class Waits:
    """A lease that Kueue has not admitted."""

    cause: AdmissionCause  # what it lacks
    words: str  # what Kueue says


@dataclass(frozen=True)
class Admitted:
    """A lease that has its quota, and whose pod is about to start."""

    stuck: str = ""  # why the pod will not start unless somebody acts; empty: it is on its way


@dataclass(frozen=True)
class Runs:
    """A lease whose container runs."""


@dataclass(frozen=True)
class Ended:
    """A lease whose work has ended, or must end."""

    cause: EndCause
    words: str = ""  # what the cluster says about it
    exit_code: int | None = None  # exit code of its container; None: not known


Stage: TypeAlias = Waits | Admitted | Runs | Ended


def stage_of(objects: LeaseObjects) -> Stage:
    """Return the stage of a lease whose JobSet was created.

    An end counts before everything else, and the first of these: the kernel's word about memory,
    Kueue's about an eviction, then the pod's own end; a JobSet that failed has lost its pod.
    """
    jobset, workload, pods = objects.jobset, objects.workload, objects.pods
    ends = [end for pod in pods for end in _terminations(pod)]
    if killed := next((end for end in ends if end.reason == "OOMKilled"), None):
        return Ended("oom", killed.message or "OOMKilled", killed.exit_code)
    if workload is not None and (evicted := workload.holds("Evicted")):
        return Ended("evicted", f"{evicted.reason}: {evicted.message}")
    if lost := next(filter(None, map(_loss, pods)), None):
        return lost
    if ends:
        worst = max(ends, key=lambda end: end.exit_code != 0)
        return Ended("exited", worst.message or worst.reason, worst.exit_code)
    if jobset is None or jobset.metadata.deletion_timestamp is not None:
        return Ended("deleted", "somebody deleted its JobSet")
    if jobset.holds("Completed"):
        return Ended("exited", "the JobSet is complete", 0)
    if failed := jobset.holds("Failed"):
        return Ended("lost", f"{failed.reason}: {failed.message}")
    if any(each.state.running is not None for pod in pods for each in pod.status.containers):
        return Runs()
    if workload is not None and workload.holds("Admitted"):
        return Admitted(next(filter(None, map(_stuck, pods)), "") if pods else NO_POD)
    return _wait(workload)


def _terminations(pod: Pod) -> Iterator[Terminated]:
    for container in pod.status.containers:
        if container.state.terminated is not None:
            yield container.state.terminated


def _loss(pod: Pod) -> Ended | None:
    """Return how the pod was evicted or its node lost; None: neither.

    An evicted pod may still write its checkpoint, and says so to its agent. One whose node is lost
    stays as it was: no kubelet says that it has ended.
    """
    status = pod.status
    if status.phase == "Succeeded":
        return None
    target = next((each for each in status.conditions if each.type == "DisruptionTarget"), None)
    if target is not None and target.status == "True":
        return Ended("lost", f"{target.reason}: {target.message}")
    if status.phase not in ("Failed", "Unknown"):
        return None
    if status.phase == "Unknown" or (status.reason and not any(_terminations(pod))):
        return Ended("lost", f"{status.reason or 'the node is silent'}: {status.message}")
    return None


def _stuck(pod: Pod) -> str:
    for container in pod.status.containers:
        waiting = container.state.waiting
        if waiting is not None and waiting.reason in CANNOT_START:
            return f"{waiting.reason}: {waiting.message}"
    for each in pod.status.conditions:
        if each.type == "PodScheduled" and each.status == "False":
            return f"{each.reason}: {each.message}"
    return ""


def _wait(workload: ManagedObject | None) -> Waits:
    if workload is None:
        return Waits("queue", "Kueue has made no Workload of it")
    reserved = workload.condition("QuotaReserved")
    if reserved is None:
        return Waits("queue", "Kueue has not looked at it")
    if reserved.status == "True":  # what is left are admission checks, as a ProvisioningRequest
        admitted = workload.condition("Admitted")
        checks = "Kueue waits for its admission checks"
        return Waits("provisioning", checks if admitted is None else admitted.message)
    cause: AdmissionCause = "topology" if "topology" in reserved.message.lower() else "quota"
    return Waits(cause, reserved.message)
