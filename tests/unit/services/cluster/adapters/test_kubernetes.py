"""The API of Kubernetes, answered by a test."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import httpx2
import pytest
from lightkube import AsyncClient, KubeConfig
from lightkube.config.models import Cluster, User

from services.cluster.adapters.kubernetes import KubernetesCluster
from services.cluster.ports import ClusterRefused, ClusterUnavailable

Json = dict[str, Any]
Answer = Callable[[httpx2.Request], httpx2.Response]
Awaited = Callable[[httpx2.Request], Coroutine[None, None, httpx2.Response]]
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"


def cluster_of(answer: Answer | Awaited) -> KubernetesCluster:
    client = AsyncClient(
        config=KubeConfig.from_one(cluster=Cluster("http://cluster"), user=User(token="token")),
        namespace="team-a",
        transport=httpx2.MockTransport(answer),
    )
    return KubernetesCluster(client, "k8s", "tunery", resource="nvidia.com/gpu", fresh_s=60)


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


async def test_a_missing_right_is_named() -> None:
    said = 'jobsets.jobset.x-k8s.io is forbidden: User "agent" cannot list resource "jobsets"'
    with pytest.raises(ClusterRefused, match='cannot list resource "jobsets"'):
        await cluster_of(refusing(403, said)).look()


@pytest.mark.parametrize("code", [429, 500, 503, 504])
async def test_an_api_server_in_trouble_is_asked_again_later(code: int) -> None:
    with pytest.raises(ClusterUnavailable):
        await cluster_of(refusing(code, "etcdserver: leader changed")).look()


async def test_bad_input_a_kind_that_the_cluster_does_not_serve_is_named() -> None:
    cluster = cluster_of(lambda _request: httpx2.Response(404, text="404 page not found"))
    with pytest.raises(ClusterRefused, match=r"does not serve jobset\.x-k8s\.io/v1alpha2: inst"):
        await cluster.look()


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
async def test_what_is_no_answer_of_kubernetes_is_that_of_an_api_server_in_trouble(
    answer: httpx2.Response,
) -> None:
    cluster = cluster_of(lambda _request: answer)
    with pytest.raises(ClusterUnavailable, match="the objects of our leases"):
        await cluster.look()
    if not answer.is_success:
        with pytest.raises(ClusterUnavailable, match="JobSet t-default-1-a1"):
            await cluster.delete("t-default-1-a1")


async def test_leases_that_look_at_the_same_time_cost_one_look() -> None:
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.path.rpartition("/")[2])
        return httpx2.Response(200, json={"items": [], "metadata": {}})

    cluster = cluster_of(answer)
    for _ in range(5):
        assert await cluster.look() == {}
    assert asked == ["jobsets", "workloads", "pods"]


async def test_a_look_asks_for_workloads_of_own_jobsets_alone() -> None:
    selectors: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        kind = request.url.path.rpartition("/")[2]
        items: list[Json] = []
        if kind == "jobsets":
            assert request.url.params["labelSelector"] == "tunery.dev/node=k8s"
            items = [{"metadata": {"name": f"t-{n}", "uid": f"u-{n}"}} for n in range(150)]
        elif kind == "workloads":
            selectors.append(request.url.params["labelSelector"])
            label, _, uids = selectors[-1].partition(" in ")
            items = [
                {"metadata": {"name": f"w-{uid}", "labels": {label: uid}}}
                for uid in uids.strip("()").split(",")
            ]
        return httpx2.Response(200, json={"items": items, "metadata": {}})

    seen = await cluster_of(answer).look()
    assert len(seen) == 150
    for n in range(150):
        workload = seen[f"t-{n}"].workload
        assert workload is not None
        assert workload.metadata.name == f"w-u-{n}"
    assert [each.count(",") + 1 for each in selectors] == [100, 50], "a URL has a limit"
    assert all(len(each) < 4_000 for each in selectors)


async def test_what_is_gone_already_is_deleted() -> None:
    deleted: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        deleted.append(f"{request.method} {request.url.path.rpartition('/')[2]}")
        return refusing(404, "not found")(request)

    await cluster_of(answer).delete("t-default-1-a1")
    assert deleted == ["DELETE t-default-1-a1"]


async def test_a_look_that_began_before_a_change_does_not_count_after_it() -> None:
    began, may_end, asked = asyncio.Event(), asyncio.Event(), list[str]()

    async def answer(request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            asked.append(request.url.path.rpartition("/")[2])
            began.set()
            await may_end.wait()
        return httpx2.Response(200, json={"items": [], "metadata": {}})

    cluster = cluster_of(answer)
    looking = asyncio.create_task(cluster.look())
    await began.wait()
    await cluster.delete("t-default-1-a1")
    may_end.set()
    await looking
    await cluster.look()
    assert asked == ["jobsets", "workloads", "pods", "jobsets", "pods"]
