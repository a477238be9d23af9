"""An operator has commands refused that stop their partition; the owner goes on by itself."""

import json
from pathlib import Path
from uuid import uuid4

import pytest

from examples.first_stream import SEATS, SEATS_AGGREGATE, HoldSeats, SeatsHeld
from schemas import errors
from schemas.envelope import Claim, Entry, Rejected, Source
from schemas.topics import STREAMS
from simulator.event_core.streams import CountSeats
from tests.hosts import running
from tests.unit.tunery.cli.journal.journals import OWNERS, Front, filled, records
from tests.unit.tunery.runtime.journal.memory_fixture import World, envelope, until
from tunery.cli.journal import refusing
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir
from tunery.platform.bus.sender_keys import keys_of
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.bus.signing import UNSIGNED
from tunery.runtime.journal.codec import decode_record
from tunery.runtime.journal.refusals import OPERATOR
from tunery.runtime.tools.inspection import Inspector
from tunery.runtime.tools.verify import replay

KEY = "tenant-a"
PARTITION = partition_of(KEY.encode())
WHY = "sent by a version that is gone"


@pytest.fixture(autouse=True)
def toy_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STREAMS, SEATS.name, SEATS)


def put_poison(world: World, offset: int) -> None:
    """A reaction that no version of `seats` can decide."""
    source = Source("tally", 0, 0, offset, 0)
    body = envelope(KEY, CountSeats(seats=1), str(uuid4()), source=source)
    world.log.put(SEATS.commands.name, PARTITION, KEY.encode(), body)


async def refuse(world: World, offset: int) -> refusing.Refused:
    return await refusing.refuse(
        world.log, SEATS.name, PARTITION, offset, "ada@ops:1", WHY, UNSIGNED
    )


async def test_review2_e7_a_partition_goes_on_once_its_poisoned_command_is_refused() -> None:
    """Two of them, with commands of clients before, between and behind."""
    world = await World().create()
    host = world.host()
    async with running(host):
        await world.sender.send(SEATS, KEY, KEY, HoldSeats(seats=1))
        put_poison(world, 5)
        await world.sender.send(SEATS, KEY, KEY, HoldSeats(seats=1))
        put_poison(world, 6)
        await world.sender.send(SEATS, KEY, KEY, HoldSeats(seats=1))
        await until(lambda: PARTITION in host.stopped)
        assert host.stopped[PARTITION].offset == 1
        assert len(await world.decided(KEY, 1)) == 1, "what came before it is decided"
        first = await refuse(world, 1)
        assert (first.offset, first.cause) == (1, 1)
        await world.decided(KEY, 3)
        await until(lambda: PARTITION in host.stopped)
        assert host.stopped[PARTITION].offset == 3
        await refuse(world, 3)
        events = await world.decided(KEY, 5)
        await until(lambda: host.owners[PARTITION].serving)
        assert host.stopped == {}
    kinds = [type(event) for event in events]
    assert kinds == [SeatsHeld, Rejected, SeatsHeld, Rejected, SeatsHeld]
    assert [events[at].code for at in (1, 3)] == [errors.OPERATOR_REFUSED] * 2
    journal = world.log.topics[SEATS.journal.name][PARTITION].records
    replayed = replay(SEATS_AGGREGATE, PARTITION, journal)
    owner = host.owners.get(PARTITION)
    assert (replayed.accepted, len(replayed.fold.state[KEY].held)) == (5, 3)
    assert owner is None or owner.settled is None or owner.settled.state == replayed.fold.state


async def test_review2_e7_the_order_stays_in_the_journal_and_outlives_a_restart() -> None:
    world = await World().create()
    put_poison(world, 5)
    async with running(host := world.host()):
        await until(lambda: PARTITION in host.stopped)
    await refuse(world, 0)  # while no owner runs
    async with running(world.host("b")):
        (rejected,) = await world.decided(KEY, 1)
    assert isinstance(rejected, Rejected)
    journal = world.log.topics[SEATS.journal.name][PARTITION].records
    inspector = Inspector(SEATS)
    shown = [inspector.look(record) for record in journal]
    orders = [report for report in shown if "refuses command 0" in report.why]
    assert [(report.verdict, WHY in report.why) for report in orders] == [("claim", True)]
    (entry,) = [e for e in (decode_record(r.value) for r in journal) if isinstance(e, Entry)]
    assert entry.source == Source("tally", 0, 0, 5, 0)


async def test_review2_e7_only_the_command_that_is_next_can_be_refused() -> None:
    world = await World().create()
    async with running(host := world.host()):
        await world.sender.send(SEATS, KEY, KEY, HoldSeats(seats=1))
        put_poison(world, 5)
        await world.sender.send(SEATS, KEY, KEY, HoldSeats(seats=1))
        await until(lambda: PARTITION in host.stopped)
        before = world.log.topics[SEATS.journal.name][PARTITION].end
        for offset, why in ((0, "decided already"), (2, "not the next"), (9, "no record")):
            with pytest.raises(LocalError, match=why):
                await refuse(world, offset)
        assert world.log.topics[SEATS.journal.name][PARTITION].end == before


def test_review2_e7_the_order_is_signed_by_an_operator(tmp_path: Path) -> None:
    folders, file = DataDir(tmp_path), tmp_path / "secret"
    with pytest.raises(LocalError, match="has to be signed"):
        refusing.operator_keys(folders, None, {})
    assert refusing.operator_keys(folders, None, {"TUNERY_COMMAND_KEYS": "off"}) == UNSIGNED
    file.write_text("s" * 32, encoding="ascii")
    keys = refusing.operator_keys(folders, file, {})
    record = keys.sign("pool", b'{"a":1}')
    assert keys_of(b"s" * 32, "scheduler").sender_of("pool", record, 0) == OPERATOR


def test_review2_e7_the_command_line_writes_the_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = filled("account.owners_and_repeats")
    stream, partition = "account", OWNERS.partition
    front = Front(monkeypatch, log)
    secret = tmp_path / "secret"
    secret.write_text("s" * 32, encoding="ascii")
    verified = json.loads(front("verify", stream, "-p", partition, "--json").stdout)
    tally = verified["partitions"][0]
    commands = log.topics[STREAMS[stream].commands.name][partition]
    commands.start = offset = tally["cause"] + 1 - tally["base"]
    log.put(STREAMS[stream].commands.name, partition, b"acme", b"no command at all")
    words = ("refuse", stream, partition, offset, "--reason", WHY, "--secret", secret)
    refused = json.loads(front(*words, "--json").stdout)
    assert refused["cause"] == tally["cause"] + 1
    claim = decode_record(records(log, stream, partition)[refused["claim"]].value)
    assert isinstance(claim, Claim)
    assert b'"sender":"operator"' in bytes(claim.refusal)  # type: ignore[arg-type]  # it is set
    assert "is to be refused" in front(*words).output
    front("verify", stream, "-p", partition)
