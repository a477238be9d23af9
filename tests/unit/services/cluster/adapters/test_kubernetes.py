"""The API of Kubernetes, answered by a test."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import httpx2
import pytest
from lightkube import AsyncClient, KubeConfig
from lightkube.config.models import Cluster, User

from services.cluster.adapters.kubernetes import JOB_UID, PAUSE_S, RESYNC_S, KubernetesCluster
from services.cluster.domain.manifests import JOBSET_NAME
from services.cluster.ports import ClusterRefused, ClusterUnavailable
from tests.virtual_time import on_virtual_time

Json = dict[str, Any]
Answer = Callable[[httpx2.Request], httpx2.Response]
Awaited = Callable[[httpx2.Request], Coroutine[None, None, httpx2.Response]]
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
NAME = "t-default-1-a1"


def cluster_of(answer: Answer | Awaited) -> KubernetesCluster:
    client = AsyncClient(
        config=KubeConfig.from_one(cluster=Cluster("http://cluster"), user=User(token="token")),
        namespace="team-a",
        transport=httpx2.MockTransport(answer),
    )
    return KubernetesCluster(client, "k8s", "tunery", resource="nvidia.com/gpu")


def queue_with(**quota: str) -> Answer:
    """A queue whose flavor has this quota."""
    resources = [{"name": "nvidia.com/gpu", **quota}]
    group = {"flavors": [{"name": "h100", "resources": resources}]}
    objects: dict[str, Json] = {
        f"{KUEUE}/namespaces/team-a/localqueues/tunery": {"spec": {"clusterQueue": "teams"}},
        f"{KUEUE}/clusterqueues/teams": {"spec": {"resourceGroups": [group]}},
        f"{KUEUE}/resourceflavors/h100": {
            "spec": {"nodeLabels": {"gpu": "h100"}, "nodeTaints": [{"key": "gpu"}]}
        },
    }

    def answer(request: httpx2.Request) -> httpx2.Response:
        named = objects[request.url.path]
        return httpx2.Response(200, json={"metadata": {"name": "x"}, **named})

    return answer


def refusing(code: int, message: str) -> Answer:
    status = {"kind": "Status", "status": "Failure", "code": code, "message": message}
    return lambda _request: httpx2.Response(code, json=status)


@pytest.mark.parametrize(
    ("quota", "slots"),
    [
        ({"nominalQuota": "16"}, 16),
        ({"nominalQuota": "16", "borrowingLimit": "8"}, 24),
        ({"nominalQuota": "0", "borrowingLimit": "2"}, 2),
        ({"nominalQuota": "1k"}, 1_000),
    ],
)
async def test_slots_are_the_quota_and_what_may_be_borrowed(
    quota: dict[str, str], slots: int
) -> None:
    answer = await cluster_of(queue_with(**quota)).quota("h100", 1)
    assert (answer.slots, answer.flavor.labels) == (slots, {"gpu": "h100"})
    assert answer.flavor.taints == ({"key": "gpu"},)


@on_virtual_time
async def test_a_missing_right_is_named() -> None:
    said = 'jobsets.jobset.x-k8s.io is forbidden: User "agent" cannot list resource "jobsets"'
    with pytest.raises(ClusterRefused, match='cannot list resource "jobsets"'):
        await cluster_of(refusing(403, said)).look()


@pytest.mark.parametrize("code", [429, 500, 503, 504])
@on_virtual_time
async def test_an_api_server_in_trouble_is_asked_again_later(code: int) -> None:
    with pytest.raises(ClusterUnavailable):
        await cluster_of(refusing(code, "etcdserver: leader changed")).look()


@on_virtual_time
async def test_bad_input_a_kind_that_the_cluster_does_not_serve_is_named() -> None:
    cluster = cluster_of(lambda _request: httpx2.Response(404, text="404 page not found"))
    with pytest.raises(ClusterRefused, match=r"does not serve jobset\.x-k8s\.io/v1alpha2: inst"):
        await cluster.look()


@on_virtual_time
async def test_an_api_server_that_is_away_is_asked_again_later() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused", request=request)

    with pytest.raises(ClusterUnavailable, match="ConnectError"):
        await cluster_of(answer).look()


@pytest.mark.parametrize(
    "answer",
    [
        httpx2.Response(502, html="<h1>Bad gateway</h1>"),
        httpx2.Response(503),
        httpx2.Response(200, html="<h1>Sign in</h1>"),
        httpx2.Response(200, json={"items": [{"metadata": {"name": None}}], "metadata": {}}),
    ],
)
@on_virtual_time
async def test_what_is_no_answer_of_kubernetes_is_that_of_an_api_server_in_trouble(
    answer: httpx2.Response,
) -> None:
    cluster = cluster_of(lambda _request: answer)
    with pytest.raises(ClusterUnavailable, match="the objects of our leases"):
        await cluster.look()
    if not answer.is_success:
        with pytest.raises(ClusterUnavailable, match="JobSet t-default-1-a1"):
            await cluster.delete("t-default-1-a1")


class Lines(httpx2.AsyncByteStream):
    """Answer to a watch: what a test puts into it, for as long as the test runs."""

    def __init__(self) -> None:
        self._lines = asyncio.Queue[Json]()

    def put(self, change: str, seen: Json) -> None:
        self._lines.put_nowait({"type": change, "object": seen})

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield json.dumps(await self._lines.get()).encode() + b"\n"


class Api:
    """Lists are of `objects` by kind. Each watch is another stream, the last one in `watches`."""

    def __init__(self) -> None:
        self.objects: dict[str, list[Json]] = {}
        self.watches: dict[str, Lines] = {}
        self.requests: list[str] = []
        self.watch_status = 200
        self.may_list = asyncio.Event()
        self.may_list.set()

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        kind, params = request.url.path.rpartition("/")[2], request.url.params
        if request.method == "POST":
            return httpx2.Response(201, json=json.loads(request.content))
        if kind == "workloads":
            assert "labelSelector" not in params, "Kueue gives them no label of ours"
        else:
            assert params["labelSelector"] == "tunery.dev/node=k8s"
        if "watch" in params:
            assert params["resourceVersion"] == "7"
            self.requests.append(f"watch {kind}")
            self.watches[kind] = Lines()
            return httpx2.Response(self.watch_status, stream=self.watches[kind])
        self.requests.append(f"list {kind}")
        items = list(self.objects.get(kind, ()))
        await self.may_list.wait()
        return httpx2.Response(200, json={"items": items, "metadata": {"resourceVersion": "7"}})


def seen(name: str, /, version: str = "8", **labels: str) -> Json:
    return {
        "metadata": {"name": name, "uid": f"u-{name}", "labels": labels, "resourceVersion": version}
    }


async def counts(cluster: KubernetesCluster) -> dict[str, tuple[bool, bool, int]]:
    """By lease, once nothing is left to do: has it a JobSet, a Workload, and how many pods?"""
    await asyncio.sleep(0.1)
    return {
        name: (each.jobset is not None, each.workload is not None, len(each.pods))
        for name, each in (await cluster.look()).items()
    }


@on_virtual_time
async def test_looks_cost_no_requests_but_those_of_watches_and_a_list_a_minute() -> None:
    api = Api()
    cluster = cluster_of(api)
    kinds = ("jobsets", "workloads", "pods")
    wanted = [f"{verb} {kind}" for kind in kinds for verb in ("list", "watch")]
    for _ in range(5):
        assert await counts(cluster) == {}
    assert sorted(api.requests) == sorted(wanted)
    await asyncio.sleep(RESYNC_S)
    assert await counts(cluster) == {}
    assert sorted(api.requests) == sorted(2 * wanted)


@on_virtual_time
async def test_changes_are_seen_as_they_come() -> None:
    api = Api()
    api.objects["jobsets"] = [seen(NAME)]
    api.objects["workloads"] = [
        seen("of-another", **{JOB_UID: "u-another"}),
        seen("own", **{JOB_UID: f"u-{NAME}"}),
    ]
    cluster = cluster_of(api)
    await cluster.look()
    assert await counts(cluster) == {NAME: (True, True, 0)}
    pod = seen("pod", **{JOBSET_NAME: NAME})
    api.watches["pods"].put("ADDED", pod)
    assert await counts(cluster) == {NAME: (True, True, 1)}
    for kind, gone in (("jobsets", seen(NAME)), ("pods", pod)):
        api.watches[kind].put("DELETED", gone)
    assert await counts(cluster) == {}


@on_virtual_time
async def test_a_lease_sees_what_it_created_although_a_list_began_before() -> None:
    api = Api()
    api.may_list.clear()
    cluster = cluster_of(api)
    looking = asyncio.create_task(cluster.look())
    await asyncio.sleep(0.1)
    owner = {"apiVersion": "v1", "kind": "JobSet", "name": NAME, "uid": ""}
    owned = {"metadata": {"name": NAME, "ownerReferences": [owner]}}
    jobset = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", **seen(NAME)}
    await cluster.create(jobset, owned, owned)
    api.may_list.set()
    assert list(await looking) == [NAME]


@on_virtual_time
async def test_a_version_that_the_api_server_has_forgotten_is_listed_again() -> None:
    api = Api()
    cluster = cluster_of(api)
    assert await counts(cluster) == {} == await counts(cluster)
    api.objects["jobsets"] = [seen(NAME)]
    api.watches["jobsets"].put("ERROR", {"kind": "Status", "code": 410, "message": "too old"})
    assert await counts(cluster) == {NAME: (True, False, 0)}


@on_virtual_time
async def test_what_a_broken_watch_had_is_not_taken_for_the_present() -> None:
    api = Api()
    cluster = cluster_of(api)
    assert await counts(cluster) == {} == await counts(cluster)
    api.watches["pods"].put("ERROR", {"kind": "Status", "code": 500, "message": "no etcd"})
    with pytest.raises(ClusterUnavailable, match="no etcd"):
        await counts(cluster)
    await asyncio.sleep(PAUSE_S)
    assert await counts(cluster) == {}
    assert api.requests.count("watch pods") == 2


@on_virtual_time
async def test_a_watch_that_is_refused_is_named() -> None:
    api = Api()
    api.watch_status = 403
    cluster = cluster_of(api)
    with pytest.raises(ClusterRefused, match='cannot watch resource "jobsets"'):
        assert await counts(cluster) == await counts(cluster)


async def test_what_is_gone_already_is_deleted() -> None:
    deleted: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        deleted.append(f"{request.method} {request.url.path.rpartition('/')[2]}")
        return refusing(404, "not found")(request)

    await cluster_of(answer).delete(NAME)
    assert deleted == [f"DELETE {NAME}"]
