"""Facts arrive, in order, however long the log is away; telemetry is dropped instead."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from schemas.pool import ReportCheckpoint, RetireNode, Token
from schemas.telemetry import Heartbeat, LogLine, Progress
from schemas.topics import HEARTBEATS, POOL, TELEMETRY
from schemas.training import BlobFile, Checkpoint
from services.trainer.effect.reports import INTEGER_MAX, RETRIES, Reports
from tests.unit.services.trainer.effect.outages import SleepClock
from tunery.platform.bus.sender_keys import keys_of
from tunery.platform.memory_servers import MemoryServers, memory_servers
from tunery.runtime.bus.abstract import AppendUnknown, TooLarge, Unavailable
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.bus.signing import SenderKeys
from tunery.runtime.journal.codec import codec_of, decode_envelope

SECRET = b"s" * 32
LEAVE = RetireNode(node_id="a", incarnation="a-1")


async def servers() -> tuple[MemoryServers, Reports]:
    there = await memory_servers(SleepClock())
    return there, Reports(there.runtime("trainer"), "default")


def failing(send: Callable[..., Awaitable[Any]], *errors: Exception) -> Callable[..., Any]:
    """The first calls raise these errors; what is unknown was appended all the same."""
    left = list(errors)

    async def call(*arguments: Any, **options: Any) -> Any:
        if left:
            error = left.pop(0)
            if isinstance(error, AppendUnknown):
                await send(*arguments, **options)
            raise error
        return await send(*arguments, **options)

    return call


async def read(there: MemoryServers, topic: str, key: str) -> list[bytes]:
    reader = await there.log.reader(topic, {partition_of(key.encode()): 0})
    records = await reader.poll(10, 100)
    await reader.close()
    return [record.value for record in records]


async def commands(there: MemoryServers) -> list[Any]:
    values = await read(there, POOL.commands.name, "default")
    return [codec_of(POOL).command(decode_envelope(value)) for value in values]


async def test_facts_stand_in_the_log_of_their_pool_in_the_order_of_the_calls() -> None:
    there, reports = await servers()
    for node_id in "abc":
        await reports.fact(RetireNode(node_id=node_id, incarnation="i"))
    assert [command.node_id for command in await commands(there)] == ["a", "b", "c"]


async def test_a_fact_is_repeated_with_growing_pauses_until_it_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there, reports = await servers()
    outage = [Unavailable("away")] * 12
    monkeypatch.setattr(there.log, "send", failing(there.log.send, *outage))
    await reports.fact(LEAVE)
    assert await commands(there) == [LEAVE]
    pauses = [RETRIES.delay_ms(number) for number in range(1, 13)]
    assert there.clock.monotonic_ms() == sum(pauses)
    assert pauses[:3] == [100, 200, 400]
    assert pauses[-1] == 5_000


async def test_a_fact_that_may_be_in_the_log_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there, reports = await servers()
    monkeypatch.setattr(there.log, "send", failing(there.log.send, AppendUnknown("no answer")))
    await reports.fact(LEAVE)
    assert await commands(there) == [LEAVE, LEAVE]


async def test_a_fact_that_never_fits_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    there, reports = await servers()
    monkeypatch.setattr(there.log, "send", failing(there.log.send, TooLarge("2 MB")))
    with pytest.raises(TooLarge):
        await reports.fact(LEAVE)
    assert there.clock.monotonic_ms() == 0


LINE = LogLine(tenant="acme", job_id="ftjob-1", attempt=1, level="info", text="hello")
BEAT = Heartbeat(node_id="a", incarnation="a-1", pool="default", leases=())


async def test_telemetry_and_heartbeats_have_topics_of_their_own() -> None:
    there, reports = await servers()
    await reports.telemetry(LINE)
    await reports.heartbeat(BEAT)
    (line,) = await read(there, TELEMETRY.name, "ftjob-1")
    (beat,) = await read(there, HEARTBEATS.name, "a")
    assert msgspec.json.decode(line)["text"] == "hello"
    assert msgspec.json.decode(beat, type=Heartbeat) == BEAT


@pytest.mark.security
async def test_security_c2_telemetry_is_signed_by_the_node(
    caplog: pytest.LogCaptureFixture,
) -> None:
    there = await memory_servers(SleepClock())
    runtime = there.runtime("trainer")
    gateway = keys_of(SECRET, "gateway")
    await Reports(replace(runtime, keys=keys_of(SECRET, "node.a")), "default").telemetry(LINE)
    assert not caplog.records
    earlier = SenderKeys("node.a", {POOL.name: b"k"})
    await Reports(replace(runtime, keys=earlier), "default").telemetry(LINE)
    signed, plain = await read(there, TELEMETRY.name, "ftjob-1")
    assert gateway.sender_of(TELEMETRY.name, signed, 0) == "node.a"
    assert msgspec.json.decode(signed, type=LogLine) == LINE
    assert msgspec.json.decode(plain) == msgspec.json.decode(msgspec.json.encode(LINE))
    assert [said.getMessage() for said in caplog.records] == ["telemetry.unsigned"]


@pytest.mark.parametrize("error", [Unavailable("away"), AppendUnknown("?"), TooLarge("2 MB")])
async def test_telemetry_is_dropped_where_a_fact_would_wait(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, reports = await servers()
    monkeypatch.setattr(there.log, "send", failing(there.log.send, error))
    await reports.telemetry(LINE)
    assert there.clock.monotonic_ms() == 0
    await reports.telemetry(LINE)
    assert await read(there, TELEMETRY.name, "ftjob-1")


@pytest.mark.parametrize("number", [1 << 63, 10**300, -(1 << 70)])
async def test_security_no_number_of_a_process_is_larger_than_tables_can_keep(number: int) -> None:
    there, reports = await servers()
    token = Token(pool="default", lease=1)
    file = BlobFile(name="a", blob="t/a/checkpoints/j/1/a", sha256="ab" * 32, bytes=number)
    checkpoint = Checkpoint(
        attempt=1,
        step=number,
        epoch_ppm=number,
        tokens=number,
        manifest_sha256="ab" * 32,
        files=(file,),
        captured_ms=7,
    )
    await reports.fact(ReportCheckpoint(token=token, incarnation="i", checkpoint=checkpoint))
    (said,) = await commands(there)
    (kept,) = said.checkpoint.files
    numbers = (said.checkpoint.step, said.checkpoint.epoch_ppm, said.checkpoint.tokens, kept.bytes)
    assert {abs(each) for each in numbers} == {INTEGER_MAX}
    assert (said.checkpoint.captured_ms, kept.name) == (7, "a")
    await reports.telemetry(Progress(tenant="a", job_id="j", attempt=1, stage="s", done_ppm=number))
    (record,) = await read(there, TELEMETRY.name, "j")
    assert abs(msgspec.json.decode(record, type=Progress).done_ppm) == INTEGER_MAX
