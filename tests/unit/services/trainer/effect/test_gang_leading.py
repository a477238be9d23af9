"""The first member: who may join, whom it waits for, and what all of them ended with."""

import asyncio

import msgspec
import pytest

from services.trainer.effect import gang_leading, gang_link
from services.trainer.effect.gang_leading import verdict
from services.trainer.effect.gang_link import LINK_ERRORS, GangLink, Hello, Rendezvous
from services.trainer.effect.process_end import ProcessEnd
from tests.unit.services.trainer.effect.gangs import members
from tunery.work.exits import WorkError

RANKS = {"a": range(2), "b": range(2, 4)}
LEFT = ProcessEnd("failed", "platform", "ranks of other nodes ended", is_left=True)
KILLED = ProcessEnd("failed", "platform", "rank 2 of 4 was killed")
DIFFERS = ProcessEnd("failed", "platform", "rank 3 of 4 has other inputs", rank=3)
LOST = ProcessEnd("lost", "platform", "the connection to b was lost")
PREEMPTED, SUCCEEDED = ProcessEnd("preempted"), ProcessEnd("succeeded")


@pytest.mark.parametrize(
    ("own", "other", "outcome", "cause", "faulty", "said"),
    [
        (SUCCEEDED, LEFT, "succeeded", None, None, None),
        (PREEMPTED, PREEMPTED, "preempted", None, None, None),
        (LEFT, KILLED, "failed", "platform", "b", "on b: rank 2 of 4 was killed"),
        (KILLED, LEFT, "failed", "platform", "a", "on a: rank 2 of 4 was killed"),
        (LEFT, LOST, "failed", "platform", "b", "the connection to b was lost"),
        (KILLED, LOST, "failed", "platform", "a", "on a: rank 2 of 4 was killed"),
        (DIFFERS, DIFFERS, "failed", "bad_node", "b", "on b: rank 3 of 4 has other inputs"),
        (LEFT, PREEMPTED, "preempted", None, None, None),
    ],
)
def test_who_began_the_end_is_named(
    own: ProcessEnd,
    other: ProcessEnd,
    outcome: str,
    cause: str | None,
    faulty: str | None,
    said: str | None,
) -> None:
    end = verdict("a", own, {"b": other}, RANKS)
    assert (end.outcome, end.cause, end.faulty_node) == (outcome, cause, faulty)
    assert end.message == said


def test_a_rank_that_differs_beside_the_first_one_speaks_against_no_other_node() -> None:
    differs = ProcessEnd("failed", "platform", "rank 1 of 4 has other inputs", rank=1)
    end = verdict("a", differs, {"b": differs}, RANKS)
    assert (end.cause, end.faulty_node) == ("platform", "a")


async def test_the_end_of_a_member_is_announced_and_is_that_of_all() -> None:
    world = await members()
    other = await world.join()
    settled = await other.settle(KILLED)
    assert settled.is_forwarded
    async with asyncio.timeout(180):
        await world.first.others_ended.wait()
    end = await world.first.settle(LEFT)
    assert (end.faulty_node, end.message) == ("b", "on b: rank 2 of 4 was killed")
    await world.close()


async def test_a_member_whose_machine_is_gone_is_lost_with_its_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its network stands still: nothing is heard, and nothing ends."""
    world = await members()
    monkeypatch.setattr(gang_link, "PING_S", 60)
    monkeypatch.setattr(gang_link, "SILENT_S_MAX", 0.3)
    await world.join()
    async with asyncio.timeout(180):
        await world.first.others_ended.wait()
    end = await world.first.settle(LEFT)
    assert (end.outcome, end.cause, end.faulty_node) == ("failed", "platform", "b")
    assert end.message == "the connection to b was lost: nothing was heard for 0 s"
    await world.close()


async def test_a_member_that_does_not_join_is_named_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gang_leading, "JOIN_S_MAX", 0.1)
    monkeypatch.setattr(gang_leading, "LATE_S", 0)
    world = await members()
    await world.open()
    async with asyncio.timeout(180):
        await world.first.others_ended.wait()
    end = await world.first.settle(LEFT)
    assert (end.cause, end.faulty_node) == ("bad_node", "b")
    assert end.message == "b did not join the other nodes within 0 s"
    await world.close()


async def test_security_an_agent_of_an_earlier_incarnation_is_refused() -> None:
    world = await members()
    report = await world.open()
    stale = world.other("b0")
    stale.meet(report.rendezvous)
    await stale.open()
    async with asyncio.timeout(180):
        await stale.others_ended.wait()
    assert not world.first._links
    await world.close()


async def test_security_who_does_not_know_the_secret_is_refused() -> None:
    world = await members()
    report = await world.open()
    opened = world.runtime.seal.open(report.rendezvous, "rendezvous")
    meeting = msgspec.json.decode(opened, type=Rendezvous)
    link = GangLink(*await asyncio.open_connection(meeting.host, meeting.port))
    await link.send(Hello("another", "b", "b1"))
    with pytest.raises(LINK_ERRORS):
        await link.receive()
    assert not world.first._links
    await link.close()
    await world.close()


async def test_review2_p7_a_missing_interface_is_named_with_the_setting() -> None:
    world = await members()
    world.first.interface = "none0"
    with pytest.raises(WorkError, match="a cannot listen at its interface 'none0'") as said:
        await world.open()
    assert "TUNERY_NODE_FABRIC" in said.value.advice
    await world.close()


async def test_the_end_of_one_member_reaches_the_others_at_once() -> None:
    """Before the ranks of the first one have noticed it."""
    world = await members()
    other = await world.join()
    world.first._ends["c"] = KILLED
    await world.first._note_end("c", KILLED)
    async with asyncio.timeout(180):
        assert await other.others_ended.wait()
    await world.close()
