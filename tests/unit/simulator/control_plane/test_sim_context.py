"""Context of a simulated run: names of tenants, partitions in use, random numbers."""

from random import Random
from types import SimpleNamespace

from schemas.topics import ACCOUNT, JOB, POOL
from simulator.control_plane.plan import Size, draw
from simulator.control_plane.samples import POOL as POOL_NAME
from simulator.control_plane.sim_context import POOL_PARTITION, SimContext, SimGang, active, tenants
from simulator.engine.broker import Broker
from tunery.runtime.bus.partitioner import partition_of

SIZE = Size()


def context(seed: int) -> SimContext:
    broker: Broker = SimpleNamespace(healed=False)  # type: ignore[assignment]  # only `healed` is read
    return SimContext(draw(seed, SIZE), SIZE, broker, Random(seed))


def test_tenants_are_numbered() -> None:
    assert tenants(3) == ("tenant-0", "tenant-1", "tenant-2")


def test_partitions_in_use_are_those_of_the_tenants_and_the_pool() -> None:
    partitions = active(SIZE)
    assert {topic for topic in partitions if "pool" in topic} == {
        POOL.commands.name,
        POOL.journal.name,
    }
    by_tenant = {partition_of(name.encode()) for name in tenants(SIZE.tenants)}
    assert partitions[JOB.journal.name] == partitions[JOB.commands.name] == by_tenant
    assert partitions[ACCOUNT.journal.name] >= by_tenant
    assert partitions[POOL.journal.name] == {POOL_PARTITION} == {partition_of(POOL_NAME.encode())}


def test_random_numbers_depend_on_the_seed_and_on_the_name_alone() -> None:
    first, again, other = context(1), context(1), context(2)
    assert first.chance("a").random() == again.chance("a").random()
    assert first.chance("a").random() != first.chance("b").random()
    assert first.chance("a").random() != other.chance("a").random()


def test_the_first_end_of_a_member_counts() -> None:
    gang = SimGang(joined={"b", "c"})
    gang.end("b", "preempted", None)
    gang.lose("b")
    assert gang.ends == {"b": ("preempted", None)}
    assert gang.failed(("b", "c")) is None


def test_a_member_that_is_lost_is_named() -> None:
    gang = SimGang(joined={"b", "c"})
    gang.lose("c")
    assert gang.failed(("b", "c")) == ("c", "platform")
    assert gang.have_ended(("c",))
    assert not gang.have_ended(gang.joined)
