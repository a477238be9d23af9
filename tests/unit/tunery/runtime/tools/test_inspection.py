from typing import Any

import msgspec
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from examples.first_stream import SEATS, HoldSeats
from schemas.envelope import GENESIS, Claim, Entry
from schemas.sealed import Sealed
from tests.hosts import running
from tests.unit.tunery.runtime.journal.memory_fixture import World
from tunery.runtime.bus.abstract import Record
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.journal.acceptance import record_hash
from tunery.runtime.journal.codec import encode
from tunery.runtime.tools.inspection import (
    Inspector,
    PartitionReport,
    PartitionScan,
    RecordReport,
    mention,
    unsealed,
)

KEY = "tenant-a"
PARTITION = partition_of(KEY.encode())


@pytest_asyncio.fixture
async def records() -> list[Record]:
    """A claim and three entries."""
    world = await World().create()
    async with running(world.host("a")):
        for _ in range(3):
            await world.sender.send(SEATS, KEY, KEY, HoldSeats(seats=1))
        await world.decided(KEY, 3)
    return world.log.topics[SEATS.journal.name][PARTITION].records


def at(offset: int, value: bytes) -> Record:
    return Record(PARTITION, offset, 7, KEY.encode(), value)


def looked(records: list[Record]) -> list[RecordReport]:
    inspector = Inspector(SEATS)
    return [inspector.look(record) for record in records]


def walked(records: list[Record]) -> PartitionReport:
    walk = PartitionScan(SEATS, PARTITION)
    walk.take(records[:2])
    walk.take(records[2:])
    return walk.tally


async def test_inspection_lists_a_journal_record_by_record(records: list[Record]) -> None:
    claim, *entries = looked(records)
    assert (claim.verdict, claim.why) == ("claim", "a takes the partition: epoch 0")
    assert [entry.verdict for entry in entries] == ["accepted"] * 3
    assert [entry.content["cause"] for entry in entries] == [0, 1, 2]
    assert entries[0].content["events"][0]["type"] == "SeatsHeld.v1"
    assert entries[0].key == KEY


async def test_void_records_are_listed_with_the_reason(records: list[Record]) -> None:
    zombie = records[2].value  # as it was written before, under the epoch that ends here
    again = [
        *records,
        at(4, encode(Claim(owner="b", nonce="n"))),
        at(5, zombie),
        at(6, encode(Claim(owner="operator", nonce="n", base=9))),
    ]
    *_, stale, operator = looked(again)
    assert (stale.verdict, stale.why) == (
        "void",
        "written under epoch 0, after b had claimed the partition at offset 4",
    )
    assert operator.why.endswith("an operator's claim: command 9 is at physical offset 0")
    (*_, twice) = looked([*records, at(4, zombie)])
    assert (twice.verdict, twice.why) == (
        "void",
        "it decides command 1, and command 3 is the next",
    )


async def test_a_verified_partition_names_its_head(records: list[Record]) -> None:
    report = walked(records)
    assert (report.records, report.accepted, report.claims, report.void) == (4, 3, 1, 0)
    assert (report.epoch, report.cause, report.bad) == (0, 2, None)
    assert report.head == record_hash(records[-1].value).hex()


async def test_the_first_bad_record_is_named_and_nothing_after_it_is_judged(
    records: list[Record],
) -> None:
    changed = records[1].value.replace(b'"seats":1', b'"seats":2')
    report = walked([records[0], at(1, changed), *records[2:]])
    assert report.bad is not None
    assert (report.bad.offset, report.bad.verdict) == (2, "divergent")
    assert "hash chain" in report.bad.why
    assert "tunery journal import" in report.bad.fix
    assert (report.records, report.accepted, report.cause) == (3, 1, 0)


async def test_a_missing_record_is_divergence(records: list[Record]) -> None:
    report = walked([records[0], *records[2:]])
    assert report.bad is not None
    assert report.bad.why == "expected offset 1; records are missing"


async def test_what_cannot_be_decoded_is_shown_with_its_bytes_and_the_fix(
    records: list[Record],
) -> None:
    future = records[1].value.replace(b"SeatsHeld.v1", b"SeatsHeld.v9")
    report = looked([records[0], at(1, future)])[1]
    assert report.verdict == "unreadable"
    assert "Invalid value 'SeatsHeld.v9'" in report.why
    assert "readers are deployed before writers" in report.fix
    assert report.content["events"][0]["type"] == "SeatsHeld.v9"
    garbage = looked([records[0], at(1, b"\x00\xff")])[1]
    assert (garbage.verdict, garbage.content, garbage.bytes) == (
        "unreadable",
        None,
        r"b'\x00\xff'",
    )
    deep = looked(
        [
            records[0],
            at(
                1,
                records[1].value.replace(b'"seats":1', b'"seats":' + b"[" * 9_000 + b"]" * 9_000),
            ),
        ]
    )[1]
    assert deep.verdict == "unreadable"
    assert deep.content is None


@given(st.data())
def test_any_bytes_can_be_inspected(data: st.DataObject) -> None:
    entry = Entry(epoch=0, cause=0, prev=GENESIS, at=1, command_id="c", key=KEY, tenant=KEY, seq=1)
    claim = encode(Claim(owner="a", nonce="n"))
    value = bytearray(data.draw(st.sampled_from([encode(entry), claim, b"", b"null"])))
    for index in data.draw(st.lists(st.integers(0, 200), max_size=3)):
        value[index : index + 1] = data.draw(st.binary(max_size=3))
    report = looked([at(0, claim), at(1, bytes(value))])[1]
    assert (report.verdict in {"divergent", "unreadable"}) == bool(report.fix)
    assert (report.content is None) == (report.bytes is not None)
    msgspec.json.encode(report)


def test_sealed_fields_are_replaced_wherever_they_are() -> None:
    sealed = {"key_id": "acme.1", "nonce": "AAAA", "ciphertext": "AAAA"}
    value: Any = {"a": [{"b": sealed}, 1], "name": sealed, "key_id": "x"}
    assert unsealed(value, mention) == {
        "a": [{"b": "[sealed with acme.1]"}, 1],
        "name": "[sealed with acme.1]",
        "key_id": "x",
    }
    assert unsealed(sealed, lambda sealed_field: sealed_field) == Sealed(
        "acme.1", b"\0\0\0", b"\0\0\0"
    )
