"""One namespace of a Kubernetes cluster, over lightkube."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import httpx2
import msgspec
from lightkube import ApiError, AsyncClient, KubeConfig
from lightkube.core.exceptions import ConfigError
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.resources.core_v1 import Pod, Secret
from lightkube.types import CascadeType
from lightkube.utils.quantity import parse_quantity

from services.cluster.domain import stages
from services.cluster.domain.manifests import JOBSET_NAME, NODE, Flavor, Json
from services.cluster.domain.stages import LeaseObjects, ManagedObject
from services.cluster.ports import ClusterRefused, ClusterUnavailable, QueueQuota

JOBSET: Final = ("jobset.x-k8s.io", "v1alpha2")
KUEUE: Final = ("kueue.x-k8s.io", "v1beta2")
JobSet = create_namespaced_resource(*JOBSET, "JobSet", "jobsets")
Workload = create_namespaced_resource(*KUEUE, "Workload", "workloads")
LocalQueue = create_namespaced_resource(*KUEUE, "LocalQueue", "localqueues")
ClusterQueue = create_global_resource(*KUEUE, "ClusterQueue", "clusterqueues")
ResourceFlavor = create_global_resource(*KUEUE, "ResourceFlavor", "resourceflavors")
JOB_UID: Final = "kueue.x-k8s.io/job-uid"  # label of a Workload
UIDS_MAX: Final = 100  # in one URL, which may have 8 KiB
MISSING, CONFLICT, TOO_MANY = 404, 409, 429
SERVER_ERROR: Final = 500


def connect(kubeconfig: Path | None, namespace: str) -> AsyncClient:
    """A client with the pod's own service account, or that of a file. Raises ConfigError."""
    config = (
        KubeConfig.from_service_account()
        if kubeconfig is None
        else KubeConfig.from_file(kubeconfig)
    )
    return AsyncClient(config=config, namespace=namespace, trust_env=False)


class KubernetesCluster:
    """Implements `ClusterClient`.

    agent: whose leases it sees; others may have theirs in the same namespace
    resource: what the quota is of
    fresh_s: how long what it has seen counts: leases that look at the same time cost one look
    """

    def __init__(
        self,
        client: AsyncClient,
        agent: str,
        queue: str,
        *,
        resource: str,
        fresh_s: float,
    ) -> None:
        self._client, self._agent = client, agent
        self._queue, self._resource = queue, resource
        self._fresh_s = fresh_s
        self._seen: Mapping[str, LeaseObjects] = {}
        self._seen_s = self._changed_s = float("-inf")
        self._looking = asyncio.Lock()

    async def quota(self, flavor: str, per_slot: int) -> QueueQuota:
        """Return the quota of our queue in a flavor.

        What it may borrow counts as far as a limit says so: an unlimited cohort is not a promise.
        """
        with _named_errors("the queue"):
            queue = await self._client.get(LocalQueue, self._queue)
            name = queue["spec"]["clusterQueue"]
            cluster_queue = await self._client.get(ClusterQueue, name)
            resource_flavor = await self._client.get(ResourceFlavor, flavor)
        amount = _quota_of(cluster_queue["spec"], flavor, self._resource)
        if amount is None:
            raise ClusterRefused(
                f"ClusterQueue {name} has no quota of {self._resource} in the flavor {flavor}"
            )
        spec = resource_flavor.get("spec") or {}
        labels = dict(spec.get("nodeLabels") or {})
        others = _flavors_of(cluster_queue["spec"], self._resource) - {flavor}
        if others and not labels:
            raise ClusterRefused(
                f"ResourceFlavor {flavor} has no nodeLabels, and ClusterQueue {name} has "
                f"{self._resource} in {', '.join(sorted(others))} too, so that a lease could get "
                "nodes of any of them: set spec.nodeLabels"
            )
        taints = tuple(spec.get("nodeTaints") or ())
        known = Flavor(name=flavor, labels=labels, taints=taints)
        return QueueQuota(known, int(amount // per_slot))

    async def create(self, jobset: Json, secret: Json) -> None:
        """Create the JobSet, then the Secret that it owns; what exists already stays."""
        name = jobset["metadata"]["name"]
        with _named_errors(f"JobSet {name}"):
            try:
                created = await self._client.create(JobSet(jobset))
            except ApiError as error:
                if error.status.code != CONFLICT:
                    raise
                created = await self._client.get(JobSet, name)
            (owner,) = secret["metadata"]["ownerReferences"]
            metadata = {
                **secret["metadata"],
                "ownerReferences": [{**owner, "uid": created["metadata"]["uid"]}],
            }
            with _unless(CONFLICT):
                await self._client.create(Secret.from_dict({**secret, "metadata": metadata}))
        self._changed_s = time.monotonic()

    async def look(self) -> Mapping[str, LeaseObjects]:
        async with self._looking:
            began_s = time.monotonic()
            if self._seen_s <= self._changed_s or began_s - self._seen_s > self._fresh_s:
                with _named_errors("the objects of our leases"):
                    self._seen = await self._list()
                self._seen_s = began_s  # what changes meanwhile may be missing in it
            return self._seen

    async def _list(self) -> Mapping[str, LeaseObjects]:
        """Read the pods last, so that work that ends meanwhile has its pod's message."""
        ours = {NODE: self._agent}
        jobsets: dict[str, ManagedObject] = {}
        async for jobset in self._client.list(JobSet, labels=ours):
            jobsets[jobset.metadata.name] = msgspec.convert(dict(jobset), ManagedObject)
        workloads: dict[str, ManagedObject] = {}
        names = {jobset.metadata.uid: name for name, jobset in jobsets.items()}
        # The first look asks for them without a JobSet, too: does the cluster serve them at all?
        uids = list(names) or (["none"] if self._seen_s == float("-inf") else [])
        for first in range(0, len(uids), UIDS_MAX):
            some = uids[first : first + UIDS_MAX]
            async for each in self._client.list(Workload, labels={JOB_UID: some}):
                workload = msgspec.convert(dict(each), ManagedObject)
                workloads[names[workload.metadata.labels[JOB_UID]]] = workload
        pods: dict[str, list[stages.Pod]] = {}
        async for seen in self._client.list(Pod, labels=ours):
            pod = msgspec.convert(seen.to_dict(), stages.Pod)
            pods.setdefault(pod.metadata.labels.get(JOBSET_NAME, ""), []).append(pod)
        return {
            name: LeaseObjects(
                jobset=jobsets.get(name),
                workload=workloads.get(name),
                pods=tuple(pods.get(name, ())),
            )
            for name in jobsets.keys() | pods.keys() - {""}
        }

    async def delete(self, name: str, *, grace_s: int | None = None) -> None:
        """Delete the JobSet, whose pods go first; with a grace period also these by force."""
        with _named_errors(f"JobSet {name}"):
            with _unless(MISSING):
                await self._client.delete(JobSet, name, cascade=CascadeType.FOREGROUND)
            if grace_s is not None:
                async for pod in self._client.list(Pod, labels={JOBSET_NAME: name}):
                    with _unless(MISSING):
                        await self._client.delete(Pod, pod.metadata.name, grace_period=grace_s)
        self._changed_s = time.monotonic()

    async def close(self) -> None:
        await self._client.close()


def _quota_of(spec: Mapping[str, Any], flavor: str, resource: str) -> Decimal | None:
    """Nominal quota of a resource in a flavor, and what may be borrowed; None: there is none."""
    for group in spec.get("resourceGroups") or ():
        for each in group["flavors"]:
            for quota in each["resources"]:
                if (each["name"], quota["name"]) == (flavor, resource):
                    amounts = (quota["nominalQuota"], quota.get("borrowingLimit") or 0)
                    return sum(
                        (parse_quantity(str(each)) or Decimal() for each in amounts), Decimal()
                    )
    return None


def _flavors_of(spec: Mapping[str, Any], resource: str) -> set[str]:
    """Names of the flavors in which a queue has a resource."""
    return {
        each["name"]
        for group in spec.get("resourceGroups") or ()
        for each in group["flavors"]
        if any(quota["name"] == resource for quota in each["resources"])
    }


@contextmanager
def _unless(code: int) -> Iterator[None]:
    """Ignore an answer with this status: what the block requests was done before."""
    try:
        yield
    except ApiError as error:
        if error.status.code != code:
            raise


@contextmanager
def _named_errors(what: str) -> Iterator[None]:
    """Convert errors of the client to those of the port."""
    try:
        yield
    except ApiError as error:
        code = error.status.code or SERVER_ERROR
        said = f"{what}: {error.status.message}"
        if code >= SERVER_ERROR or code == TOO_MANY:
            raise ClusterUnavailable(said) from error
        raise ClusterRefused(said) from error
    except ConfigError as error:
        raise ClusterRefused(str(error)) from error
    except httpx2.HTTPStatusError as error:
        if error.response.status_code != MISSING:
            raise ClusterUnavailable(f"{what}: {error}") from error
        # A missing object has a Status. This is a missing path: no such kind, or version of it.
        group_version = "/".join(error.request.url.path.split("/")[2:4])
        raise ClusterRefused(
            f"{what}: the cluster does not serve {group_version}: install JobSet 0.10 and Kueue "
            "0.15, or later versions that have it"
        ) from error
    except (httpx2.HTTPError, OSError, msgspec.MsgspecError, ValueError, KeyError) as error:
        # Among them pages of a proxy, which lightkube passes on in these ways.
        raise ClusterUnavailable(f"{what}: {type(error).__name__}: {error}") from error
