"""A lease in a cluster in memory: what is reported for each row of the failure table."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from schemas.lease_keys import RequestLeaseKeys
from schemas.pool import ClusterWait, ConfirmFreed, ReportExit, ReportStarted, ReportWait
from schemas.training import AttemptStart
from services.cluster.domain.link import PodRefused, Pulse, UrlRequest
from services.cluster.effect.lease import ClusterLease
from services.cluster.ports import ClusterRefused, ClusterUnavailable
from tests.unit.services.cluster.clusters import (
    TEMPLATE,
    Links,
    MemoryCluster,
    Reported,
    lease_in,
)
from tests.unit.services.cluster.domain.test_stages import (
    ADMITTED,
    RUNNING,
    condition,
    ended,
    managed,
    pod,
)
from tests.unit.services.trainer.domain.test_evolve import grant
from tests.virtual_time import on_virtual_time
from tunery.runtime.bus.abstract import TooLarge

GRANT = grant()
FREED = ConfirmFreed(token=GRANT.token, node_id=GRANT.node_id, incarnation="a1")


class World:
    """A lease that runs, its cluster, and what was reported."""

    def __init__(self, **changes: Any) -> None:
        self.cluster, self.reports, self.links = MemoryCluster(), Reported(), Links()
        self.grant = replace(GRANT, lease=replace(GRANT.lease, **changes))
        self.lease: ClusterLease = lease_in(self.cluster, self.grant, self.reports, self.links)
        self.task = asyncio.create_task(self.lease.run())

    async def becomes(self, workload: Any = None, *pods: Any, **jobset: str) -> None:
        """Set the objects of the lease, once it has made its JobSet."""
        await self.cluster.has_created.wait()
        own = {"jobset": managed(**jobset), "workload": workload, "pods": pods}
        self.cluster.objects[self.lease.name] = own

    async def starts(self) -> None:
        """Have its pod run, and say so."""
        await self.becomes(managed(*ADMITTED), pod("Running", RUNNING))
        self.lease.welcome()
        self.lease.pulse(Pulse(elapsed_ms=1_000))

    async def ends(self) -> tuple[str, str | None]:
        """The reported outcome and cause; the slots are free after it."""
        await self.task
        (said,) = [each for each in self.reports.facts if isinstance(each, ReportExit)]
        assert self.reports.facts[-1] == FREED
        assert self.lease.name not in self.cluster.objects
        assert not self.links.links
        return said.outcome, said.cause


@on_virtual_time
async def test_a_pod_that_says_how_it_ended_is_believed() -> None:
    world = World()
    await world.starts()
    said = ReportExit(token=GRANT.token, incarnation="a1", outcome="succeeded", elapsed_ms=5)
    started = ReportStarted(
        token=GRANT.token,
        incarnation="a1",
        start=AttemptStart(loaded=None, loaded_step=0, skipped=(), total_steps=9),
    )
    for fact in (started, said, FREED):
        await world.lease.fact(fact)
    assert world.reports.facts == [started, said], "its pod is not gone yet"
    assert await world.ends() == ("succeeded", None)
    assert world.reports.facts == [started, said, FREED]
    assert world.cluster.created == [world.lease.name]


@pytest.mark.parametrize(
    ("workload", "last", "end"),
    [
        (managed(*ADMITTED), pod("Failed", ended(137, "OOMKilled")), ("failed", "oom")),
        (managed(*ADMITTED), pod("Failed", ended(1, "Error")), ("failed", "platform")),
        (managed(*ADMITTED), pod("Succeeded", ended(0, "Completed")), ("failed", "platform")),
        (managed(*ADMITTED), pod("Failed", reason="NodeLost"), ("failed", "bad_node")),
        (
            managed(*ADMITTED, condition("Evicted", reason="Preempted")),
            pod("Running", RUNNING),
            ("preempted", None),
        ),
    ],
)
def test_a_pod_that_ends_silently_is_reported_by_what_the_cluster_says(
    workload: Any, last: Any, end: tuple[str, str | None]
) -> None:
    @on_virtual_time
    async def run() -> None:
        world = World()
        await world.starts()
        await world.becomes(workload, last)
        assert await world.ends() == end

    run()


@on_virtual_time
async def test_an_evicted_pod_writes_its_checkpoint_before_its_lease_ends() -> None:
    world = World()
    await world.starts()
    await world.becomes(managed(*ADMITTED, condition("Evicted")), pod("Running", RUNNING))
    for _ in range(30):  # its grace period
        world.lease.pulse(Pulse(elapsed_ms=2_000))
        await asyncio.sleep(1)
        assert not world.task.done()
    said = ReportExit(token=GRANT.token, incarnation="a1", outcome="preempted", elapsed_ms=5)
    await world.lease.fact(said)
    await world.lease.fact(FREED)
    assert await world.ends() == ("preempted", None)


@on_virtual_time
async def test_a_lease_that_kueue_never_admits_is_given_back_unstarted() -> None:
    world = World()
    await world.becomes(managed(condition("QuotaReserved", "False", "Pending", "no room")))
    await asyncio.sleep(50)
    assert not world.task.done()
    assert await world.ends() == ("not_started", None)


def waits(wait: ClusterWait | None) -> ReportWait:
    return ReportWait(token=GRANT.token, incarnation="a1", wait=wait)


@on_virtual_time
async def test_a_wait_is_reported_in_kueues_words_once_it_lasts_and_so_is_its_end() -> None:
    world = World()
    for words in ("no room", "2 more needed", "1 more needed"):
        await world.becomes(managed(condition("QuotaReserved", "False", "Pending", words)))
        await asyncio.sleep(4)
    assert world.reports.facts == [waits(ClusterWait(cause="quota", condition="1 more needed"))], (
        "what changes sooner is not worth a record of the log"
    )
    await asyncio.sleep(30)
    assert len(world.reports.facts) == 1
    await world.starts()
    await asyncio.sleep(30)
    assert world.reports.facts[1:] == [waits(None)]
    world.task.cancel()


@on_virtual_time
async def test_a_lease_that_is_admitted_at_once_is_not_said_to_wait() -> None:
    world = World()
    await world.becomes(managed(condition("QuotaReserved", "False", "Pending", "no room")))
    await asyncio.sleep(5)
    await world.starts()
    await asyncio.sleep(30)
    assert world.reports.facts == []
    world.task.cancel()


@on_virtual_time
async def test_a_lease_that_is_evicted_while_it_waits_is_not_said_to_be_admitted() -> None:
    world = World()
    pending = condition("QuotaReserved", "False", "Pending", "no room")
    await world.becomes(managed(pending))
    await asyncio.sleep(15)
    await world.becomes(managed(pending, condition("Evicted", reason="Deactivated")))
    assert await world.ends() == ("not_started", None)
    assert waits(None) not in world.reports.facts


@on_virtual_time
async def test_a_pod_whose_image_does_not_come_blames_its_node() -> None:
    world = World()
    stuck = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    await world.becomes(managed(*ADMITTED), pod("Pending", stuck))
    assert await world.ends() == ("failed", "bad_node")


@on_virtual_time
async def test_silence_of_the_api_server_is_not_the_death_of_a_pod() -> None:
    world = World()
    await world.starts()
    world.cluster.failure = ClusterUnavailable("connection refused")
    for _ in range(600):
        world.lease.pulse(Pulse(elapsed_ms=1_000))
        await asyncio.sleep(1)
    assert not world.task.done()
    world.cluster.failure = None
    world.lease.set_target("kill")
    assert await world.ends() == ("preempted", None)
    assert world.cluster.deleted == [(world.lease.name, 0)]


@on_virtual_time
async def test_what_the_cluster_refuses_names_the_reason_and_blames_the_node() -> None:
    world = World()
    world.cluster.failure = ClusterRefused("jobsets is forbidden: cannot create")
    await asyncio.sleep(5)
    world.cluster.failure = None
    assert await world.ends() == ("failed", "bad_node")


@on_virtual_time
async def test_a_lease_that_is_drained_before_its_pod_begins_is_not_started() -> None:
    world = World()
    await world.becomes(managed(*ADMITTED), pod("Pending"))
    world.lease.set_target("drain")
    assert await world.ends() == ("not_started", None)


@on_virtual_time
async def test_orders_and_keys_reach_the_pod_with_its_next_pulse() -> None:
    world = World()
    await world.starts()
    world.lease.take_keys("sealed")
    world.lease.set_target("drain")
    orders = world.lease.pulse(Pulse(idle_ms=5, elapsed_ms=70, prepared_bytes=3))
    assert (orders.target, orders.sealed_keys) == ("drain", "sealed")
    assert (world.lease.elapsed_ms, world.lease.prepared_bytes()) == (70, 3)
    world.task.cancel()


@on_virtual_time
async def test_security_a_certificate_is_good_for_one_pod() -> None:
    world = World()
    await world.starts()
    with pytest.raises(PodRefused):
        world.lease.welcome()
    with pytest.raises(PodRefused):
        await world.lease.url(UrlRequest(method="GET", key="t/other/x"))
    world.task.cancel()


@on_virtual_time
async def test_slots_are_free_when_the_pod_is_gone_and_not_before() -> None:
    world = World()
    await world.starts()
    world.cluster.keeps = True
    await world.becomes(managed(*ADMITTED), pod("Failed", ended(137, "OOMKilled")))
    await asyncio.sleep(120)
    assert not any(isinstance(each, ConfirmFreed) for each in world.reports.facts)
    world.cluster.keeps = False
    assert await world.ends() == ("failed", "oom")


@on_virtual_time
async def test_a_pod_of_a_dead_node_is_deleted_by_force_once_its_grace_period_is_over() -> None:
    world = World()
    await world.starts()
    world.cluster.keeps = True
    await world.becomes(managed(*ADMITTED), pod("Failed", reason="NodeLost"))
    await asyncio.sleep(TEMPLATE.grace_s)
    assert {grace_s for _, grace_s in world.cluster.deleted} == {None}
    await asyncio.sleep(60)
    assert world.cluster.deleted[-1] == (world.lease.name, 0)
    assert FREED not in world.reports.facts
    world.cluster.objects.clear()
    assert await world.ends() == ("failed", "bad_node")


@on_virtual_time
async def test_a_replica_gets_no_pod() -> None:
    world = World(role="serve")
    assert await world.ends() == ("failed", "bad_node")
    assert world.cluster.created == []


@on_virtual_time
async def test_security_a_pod_that_ends_its_lease_without_an_exit_has_failed() -> None:
    world = World()
    await world.starts()
    await world.lease.fact(FREED)
    assert await world.ends() == ("failed", "platform")


@on_virtual_time
async def test_an_exit_that_did_not_reach_the_log_is_reported_by_the_agent() -> None:
    world = World()
    await world.starts()
    world.reports.failure = TooLarge("2000000 bytes are above the limit of 1000000")
    said = ReportExit(token=GRANT.token, incarnation="a1", outcome="succeeded", elapsed_ms=5)
    with pytest.raises(TooLarge):
        await world.lease.fact(said)
    world.reports.failure = None
    world.lease.set_target("kill")
    assert await world.ends() == ("preempted", None)


@on_virtual_time
async def test_an_api_server_that_refuses_for_a_moment_ends_no_lease_that_runs() -> None:
    world = World()
    await world.starts()
    world.cluster.failure = ClusterRefused("jobsets is forbidden: RBAC has not begun")
    for _ in range(60):
        world.lease.pulse(Pulse(elapsed_ms=1_000))
        await asyncio.sleep(1)
    assert not world.task.done()
    world.cluster.failure = None
    world.lease.set_target("kill")
    assert await world.ends() == ("preempted", None)


@on_virtual_time
async def test_security_a_pod_sends_the_pool_no_flood_of_commands() -> None:
    world = World()
    await world.starts()
    asked = RequestLeaseKeys(lease=GRANT.token.lease, incarnation="a1", public_key="00")
    flood = [asyncio.create_task(world.lease.fact(asked)) for _ in range(1_000)]
    await asyncio.sleep(5)
    assert 40 <= len(world.reports.facts) <= 60
    for each in (*flood, world.task):
        each.cancel()


@on_virtual_time
async def test_a_lease_ends_with_a_report_whatever_happens_to_its_agent() -> None:
    world = World()
    await world.starts()
    world.cluster.failure = RuntimeError("a bug")
    await asyncio.sleep(5)
    world.cluster.failure = None
    assert await world.ends() == ("failed", "platform")


@on_virtual_time
async def test_a_lease_that_is_run_again_while_its_pod_goes_starts_no_other_one() -> None:
    world = World()
    await world.starts()
    await world.becomes(managed(*ADMITTED), pod("Failed", ended(137, "OOMKilled")))
    world.cluster.keeps = True
    await asyncio.sleep(10)
    world.task.cancel()
    await asyncio.gather(world.task, return_exceptions=True)
    world.cluster.keeps = False
    world.cluster.objects.clear()
    world.task = asyncio.create_task(world.lease.run())
    assert await world.ends() == ("failed", "oom")
    assert world.cluster.created == [world.lease.name]
