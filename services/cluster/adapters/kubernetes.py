"""One namespace of a Kubernetes cluster, over lightkube."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import httpx2
import msgspec
from lightkube import ApiError, AsyncClient, KubeConfig
from lightkube.core.exceptions import ConfigError
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.resources.core_v1 import Pod, Secret
from lightkube.resources.networking_v1 import NetworkPolicy
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
OBJECTS: Final = "the objects of our leases"
RESYNC_S: Final = 60.0  # between two lists of what a watch follows: a connection may die unnoticed
PAUSE_S: Final = 1.0  # before a watch that broke begins again
REFUSED_S: Final = 10.0  # the same, where the API server refuses it
FORBIDDEN, MISSING, CONFLICT, GONE, TOO_MANY = 403, 404, 409, 410, 429
SERVER_ERROR: Final = 500
T = TypeVar("T")


def connect(kubeconfig: Path | None, namespace: str) -> AsyncClient:
    """A client with the pod's own service account, or that of a file. Raises ConfigError."""
    config = (
        KubeConfig.from_service_account()
        if kubeconfig is None
        else KubeConfig.from_file(kubeconfig)
    )
    return AsyncClient(config=config, namespace=namespace, trust_env=False)


class Watched(Generic[T]):
    """Objects of one kind by name, as a watch has them: a list, then each change as it comes.

    listed, watched: the requests; the second gets the version of the first
    """

    def __init__(
        self,
        listed: Callable[[], Any],
        watched: Callable[[str], AsyncGenerator[tuple[str, Any], None]],
        parsed: Callable[[Any], T],
    ) -> None:
        self._listed, self._watched, self._parsed = listed, watched, parsed
        self._objects: dict[str, T] = {}
        self._added: set[str] = set()  # names of `add` since the last list began
        self._failure: Exception | None = None
        self._has_answer = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin, at the first call, and wait for the answer to the first list."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        await self._has_answer.wait()

    def objects(self) -> Mapping[str, T]:
        """Return what there is. Raises ClusterUnavailable or ClusterRefused while that is old."""
        if self._failure is not None:
            raise type(self._failure)(*self._failure.args)
        return self._objects

    def add(self, name: str, created: Any) -> None:
        """Add what was just created: its creator must not miss it until the watch has it, too."""
        self._added.add(name)
        self._objects.setdefault(name, self._parsed(created))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                with _named_errors(OBJECTS):
                    version = await self._list()
                self._failure = None
                self._has_answer.set()
                with suppress(TimeoutError):
                    async with asyncio.timeout(RESYNC_S):
                        with _named_errors(OBJECTS):
                            await self._watch(version)
            except Exception as error:  # any: nobody may take what is old for the present
                is_known = isinstance(error, ClusterRefused | ClusterUnavailable)
                self._failure = error if is_known else ClusterUnavailable(f"{OBJECTS}: {error!r}")
                self._has_answer.set()
                await asyncio.sleep(REFUSED_S if isinstance(error, ClusterRefused) else PAUSE_S)

    async def _list(self) -> str:
        self._added.clear()
        listed = self._listed()
        objects = {each.metadata.name: self._parsed(each) async for each in listed}
        # What was created meanwhile may be missing in the list.
        self._objects = {name: self._objects[name] for name in self._added} | objects
        return str(listed.resourceVersion)

    async def _watch(self, version: str) -> None:
        """Take changes until the API server has forgotten the version at which they begin."""
        try:
            async with aclosing(self._watched(version)) as changes:
                async for change, each in changes:
                    if change == "DELETED":
                        self._objects.pop(each.metadata.name, None)
                    else:
                        self._objects[each.metadata.name] = self._parsed(each)
        except ApiError as error:
            if error.status.code != GONE:
                raise


class KubernetesCluster:
    """Implements `ClusterClient`.

    agent: whose leases it sees; others may have theirs in the same namespace
    resource: what the quota is of
    """

    def __init__(self, client: AsyncClient, agent: str, queue: str, *, resource: str) -> None:
        self._client, self._queue, self._resource = client, queue, resource
        ours = {NODE: agent}
        self._jobsets = Watched(
            lambda: self._client.list(JobSet, labels=ours),
            lambda version: self._client.watch(JobSet, labels=ours, resource_version=version),
            _managed,
        )
        # Kueue gives its Workloads no labels of ours: it reads those of all agents.
        self._workloads = Watched(
            lambda: self._client.list(Workload),
            lambda version: self._client.watch(Workload, resource_version=version),
            _managed,
        )
        self._pods = Watched(
            lambda: self._client.list(Pod, labels=ours),
            lambda version: self._client.watch(Pod, labels=ours, resource_version=version),
            lambda pod: msgspec.convert(pod.to_dict(), stages.Pod),
        )

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

    async def create(self, jobset: Json, policy: Json, secret: Json) -> None:
        """Create the JobSet, then in this order what it owns; what exists already stays."""
        name = jobset["metadata"]["name"]
        with _named_errors(f"JobSet {name}"):
            try:
                created = await self._client.create(JobSet(jobset))
            except ApiError as error:
                if error.status.code != CONFLICT:
                    raise
                created = await self._client.get(JobSet, name)
            self._jobsets.add(name, created)
            with _unless(CONFLICT):
                await self._client.create(NetworkPolicy.from_dict(_owned(policy, created)))
            with _unless(CONFLICT):
                await self._client.create(Secret.from_dict(_owned(secret, created)))

    async def look(self) -> Mapping[str, LeaseObjects]:
        """Return what the watches have: it costs no request."""
        watched = (self._jobsets, self._workloads, self._pods)
        await asyncio.gather(*(each.start() for each in watched))
        jobsets = self._jobsets.objects()
        by_uid = {
            workload.metadata.labels.get(JOB_UID): workload
            for workload in self._workloads.objects().values()
        }
        workloads = {name: by_uid.get(each.metadata.uid) for name, each in jobsets.items()}
        pods: dict[str, list[stages.Pod]] = {}
        for pod in self._pods.objects().values():
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

    async def close(self) -> None:
        """End the watches. The client stays open."""
        for each in (self._jobsets, self._workloads, self._pods):
            await each.close()


def _owned(manifest: Json, created: Any) -> Json:
    """Return a manifest with the uid of its owner, which is known now."""
    (owner,) = manifest["metadata"]["ownerReferences"]
    owners = [{**owner, "uid": created["metadata"]["uid"]}]
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": owners}}


def _managed(seen: Any) -> ManagedObject:
    return msgspec.convert(dict(seen), ManagedObject)


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
        if error.response.status_code == FORBIDDEN:  # a watch, whose answer is not read
            resource = error.request.url.path.rpartition("/")[2]
            raise ClusterRefused(f'{what}: cannot watch resource "{resource}"') from error
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
