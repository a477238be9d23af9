"""Records become watches in a table, and commands to `job`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec
import pytest
from prometheus_client import REGISTRY

from schemas.anomaly import RecordAnomaly
from schemas.envelope import Envelope
from schemas.telemetry import LogLine
from schemas.topics import JOB as STREAM
from schemas.topics import SPEEDS, TELEMETRY
from schemas.units import Ms
from services.watcher.domain.peers import NodeSpeed
from services.watcher.domain.watch import AttemptOver, Watch
from services.watcher.settings import WatcherSettings
from services.watcher.watching import FORGOTTEN_MS, LATE_MS_MAX, PEERS_MAX, Watching
from tests.unit.services.watcher.telemetry import CALM, JOB, TENANT, WINDOW_MS, step
from tunery.platform.bus.sender_keys import keys_of
from tunery.platform.memory_servers import MemoryServers, memory_servers
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.bus.signing import operator_keys
from tunery.runtime.clock import SystemClock

NOW: Final = 1_795_000_020_000
KEY: Final = JOB.encode()
HERE: Final = frozenset({partition_of(KEY)})
SPIKE: Final = (*CALM, 9.0, 9.0, 9.0)


class SetClock(SystemClock):
    """Both of its times are set by the test."""

    def __init__(self) -> None:
        self.passed_ms = 0

    def now_ms(self) -> Ms:
        return NOW + self.passed_ms

    def monotonic_ms(self) -> Ms:
        return self.passed_ms


class World:
    """A watching process and what it talks to."""

    def __init__(self, servers: MemoryServers, clock: SetClock, jobs_max: int = 100) -> None:
        self.servers, self.clock = servers, clock
        self.table, self.peers = dict[bytes, bytes](), dict[bytes, bytes]()
        self.settings = WatcherSettings(window_ms=WINDOW_MS, stuck_ms=300_000, jobs_max=jobs_max)
        self.watching = self.process()

    def process(self) -> Watching:
        """A new one, with the table that is there."""
        return Watching(self.servers.runtime("watcher"), self.settings, self.table, self.peers)

    async def train(self, losses: Sequence[float], at: Ms = NOW, job_id: str = JOB) -> None:
        for number, loss in enumerate(losses, 1):
            value = msgspec.json.encode(step(number, loss=loss, job_id=job_id))
            await self.watching.take(job_id.encode(), value, at + number)

    async def say(self, attempt: int) -> None:
        """A log line of an attempt."""
        line = LogLine(tenant=TENANT, job_id=JOB, attempt=attempt, level="info", text="…")
        await self.watching.take(KEY, msgspec.json.encode(line), NOW)

    async def look_after(self, ms: Ms, readable: frozenset[int] = HERE) -> None:
        self.clock.passed_ms += ms
        await self.watching.look(readable)

    async def sent(self) -> list[Envelope]:
        partition = partition_of(TENANT.encode())
        reader = await self.servers.log.reader(STREAM.commands.name, {partition: 0})
        records = await reader.poll(0, 1_000)
        return [msgspec.json.decode(record.value, type=Envelope) for record in records]

    async def kinds(self) -> list[str]:
        bodies = [msgspec.json.decode(e.body, type=RecordAnomaly) for e in await self.sent()]
        return [body.anomaly.kind for body in bodies]


async def new_world(jobs_max: int = 100) -> World:
    clock = SetClock()
    return World(await memory_servers(clock), clock, jobs_max)


async def test_an_anomaly_is_a_command_to_the_tenants_jobs_with_an_id_of_its_window() -> None:
    world = await new_world()
    await world.train(SPIKE)
    (envelope,) = await world.sent()
    body = msgspec.json.decode(envelope.body, type=RecordAnomaly)
    assert (envelope.key, envelope.tenant, body.job_id) == (TENANT, TENANT, JOB)
    assert body.anomaly.kind == "loss_spike"

    world.table.clear()  # killed before anything was kept
    world.watching = world.process()
    await world.train(SPIKE)
    assert len({envelope.id for envelope in await world.sent()}) == 1
    assert len(await world.sent()) == 2


async def test_a_process_goes_on_with_what_the_table_has() -> None:
    world = await new_world()
    await world.train(SPIKE)
    world.watching = world.process()
    await world.train(SPIKE)
    assert await world.kinds() == ["loss_spike"]


async def test_a_node_that_is_slower_than_others_of_its_type_at_the_same_work_is_named() -> None:
    world = await new_world()
    for node_id, speed in (("a", 100.0), ("b", 104.0), ("c", 96.0), ("d", 60.0)):
        fields = {
            "node_id": node_id,
            "node_type": "h200",
            "work": "w",
            "job_id": f"ftjob-{node_id}",
        }
        for number in range(1, 20):
            body = msgspec.json.encode(step(number, tokens_per_s=speed, **fields))
            await world.watching.take(f"ftjob-{node_id}".encode(), body, NOW + number * 6_000)
    key = b"h200/w"
    reader = await world.servers.log.reader(SPEEDS.name, {partition_of(key): 0})
    for record in await reader.poll(0, 100):
        await world.watching.take_speed(record.key, record.value, record.timestamp)
    await world.watching.take_speed(key, b"{garbage", NOW)
    (envelope,) = await world.sent()
    body_sent = msgspec.json.decode(envelope.body, type=RecordAnomaly)
    assert (body_sent.job_id, body_sent.anomaly.kind) == ("ftjob-d", "slow_node")
    assert (body_sent.anomaly.measured_ppm, body_sent.anomaly.usual_ppm) == (60e6, 100e6)
    assert list(world.peers) == [key]


async def test_what_was_written_long_ago_is_learnt_from_and_not_reported() -> None:
    world = await new_world()
    await world.train(SPIKE, at=NOW - LATE_MS_MAX - 1_000)
    assert await world.sent() == []
    assert KEY in world.table


async def test_silence_is_reported_once_and_forgotten_after_an_hour() -> None:
    world = await new_world()
    await world.train(CALM)
    await world.look_after(299_000)
    assert await world.kinds() == []
    await world.look_after(1_000)
    await world.look_after(60_000)
    assert await world.kinds() == ["stuck"]
    await world.look_after(FORGOTTEN_MS)
    assert world.table == {}
    assert next(world.watching.figures()).value == 0


async def test_silence_counts_only_while_everything_was_read() -> None:
    world = await new_world()
    await world.train(CALM)
    await world.look_after(299_000)
    await world.look_after(10_000, frozenset())
    await world.look_after(200_000)
    await world.look_after(299_000)
    assert await world.kinds() == []
    await world.look_after(1_000)
    assert await world.kinds() == ["stuck"]


async def test_a_new_process_begins_without_silence() -> None:
    world = await new_world()
    await world.train(CALM)
    world.watching = world.process()
    await world.look_after(FORGOTTEN_MS * 2)
    await world.look_after(299_000)
    assert await world.kinds() == []


async def over(world: World, attempt: int) -> None:
    value = msgspec.json.encode(AttemptOver(TENANT, JOB, attempt))
    await world.watching.take_end(KEY, value, NOW)


@pytest.mark.parametrize("lateness", ["before the end", "after the end", "nothing before it"])
async def test_first_hour2_u25_an_attempt_that_has_ended_is_never_stuck(lateness: str) -> None:
    """An evaluation has no steps, and its last log lines may be read after its end."""
    world = await new_world()
    if lateness != "nothing before it":
        await world.say(attempt=2)
    await over(world, 2)
    if lateness != "before the end":
        await world.say(attempt=2)
    await world.look_after(0)
    for _ in range(6):
        await world.look_after(60_000)
    assert await world.kinds() == []


async def test_first_hour2_u25_the_next_attempt_of_a_job_can_be_stuck() -> None:
    world = await new_world()
    await world.say(attempt=1)
    await over(world, 1)
    await world.say(attempt=2)
    await over(world, 1)
    world.watching = world.process()
    await world.look_after(0)
    await world.look_after(300_000)
    assert await world.kinds() == ["stuck"]


async def test_an_end_that_cannot_be_read_is_skipped() -> None:
    world = await new_world()
    await world.watching.take_end(KEY, b"{garbage", NOW)
    assert world.table == {}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (KEY, b"{garbage"),
        (KEY, b""),
        (b"ftjob-2", msgspec.json.encode(step(1))),
        (b"x" * 201, msgspec.json.encode(step(1, job_id="x" * 201))),
    ],
)
async def test_what_is_no_message_of_its_job_is_skipped(key: bytes, value: bytes) -> None:
    world = await new_world()
    await world.watching.take(key, value, NOW)
    assert world.table == {}


async def test_a_record_that_another_version_kept_begins_anew() -> None:
    world = await new_world()
    world.table[KEY] = msgspec.msgpack.encode({"an": "other"})
    await world.train(CALM)
    assert msgspec.msgpack.decode(world.table[KEY], type=Watch).step == len(CALM)


async def test_a_defect_loses_one_record_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await new_world()

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr("services.watcher.watching.observe", fail)
        await world.train((1.0,))
    await world.train(SPIKE)
    assert await world.kinds() == ["loss_spike"]


async def test_beyond_the_limit_the_job_that_was_silent_for_longest_is_forgotten() -> None:
    world = await new_world(jobs_max=2)
    before = REGISTRY.get_sample_value("tunery_watches_evicted_total") or 0.0
    for number in range(3):
        world.clock.passed_ms += 1
        await world.train((1.0,), job_id=f"ftjob-{number}")
    assert sorted(world.table) == [b"ftjob-1", b"ftjob-2"]
    assert REGISTRY.get_sample_value("tunery_watches_evicted_total") == before + 1


async def test_the_work_that_was_compared_longest_ago_is_forgotten_beyond_the_limit() -> None:
    world = await new_world()
    speed = NodeSpeed(TENANT, JOB, 1, "a", NOW, NOW, 100.0)
    for number in range(PEERS_MAX + 1):
        world.clock.passed_ms += 1
        await world.watching.take_speed(f"h200/{number}".encode(), msgspec.json.encode(speed), NOW)
    assert len(world.peers) == PEERS_MAX
    assert b"h200/0" not in world.peers


async def test_security_c2_what_no_node_has_signed_shows_nothing() -> None:
    secret, signed = b"s" * 32, 3
    world = await new_world()
    runtime = replace(world.servers.runtime("watcher"), keys=keys_of(secret, "watcher"))
    world.watching = Watching(runtime, world.settings, world.table, world.peers)
    node, service = keys_of(secret, "node.a"), operator_keys(secret, "engine")
    for number, value in enumerate(msgspec.json.encode(step(n)) for n in range(1, signed + 1)):
        forged = node.sign(TELEMETRY.name, value)[:-3] + b'0"}'
        for record in (value, forged, service.sign(TELEMETRY.name, value)):
            await world.watching.take(KEY, record, NOW + number)
    assert world.table == {}
    await world.watching.take(KEY, node.sign(TELEMETRY.name, value), NOW + signed)
    assert world.table.keys() == {KEY}
