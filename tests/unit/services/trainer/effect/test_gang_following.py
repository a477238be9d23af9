"""A member that is not the first: it tells that one, or says why it cannot."""

import asyncio

import msgspec
import pytest

from schemas.sealed import Sealed
from services.trainer.effect import gang_following
from services.trainer.effect.gang_link import Rendezvous
from services.trainer.effect.process_end import ProcessEnd
from tests.unit.services.trainer.effect.gangs import Members, members

LEFT = ProcessEnd("failed", "platform", "ranks of other nodes ended", is_left=True)


async def test_the_end_of_the_first_member_ends_this_one() -> None:
    world = await members()
    other = await world.join()
    settling = asyncio.create_task(world.first.settle(ProcessEnd("failed", "oom", "no memory")))
    async with asyncio.timeout(180):
        await other.others_ended.wait()
    assert (await other.settle(LEFT)).is_forwarded
    end = await settling
    assert (end.cause, end.message, end.faulty_node) == ("oom", "on a: no memory", "a")
    await world.close()


async def test_a_first_member_that_is_gone_ends_this_one() -> None:
    world = await members()
    other = await world.join()
    await world.first.close()
    async with asyncio.timeout(180):
        await other.others_ended.wait()
    assert (await other.settle(LEFT)).is_forwarded, "the pool learns of it from the node's silence"
    await world.close()


async def other_place(world: Members) -> Sealed:
    """A rendezvous without a listener."""
    report = await world.open()
    opened = world.runtime.seal.open(report.rendezvous, "rendezvous")
    meeting = msgspec.structs.replace(msgspec.json.decode(opened, type=Rendezvous), port=1)
    return world.runtime.seal.seal("acme", msgspec.json.encode(meeting).decode(), "rendezvous")


@pytest.mark.parametrize("is_said", [True, False])
async def test_a_node_that_does_not_reach_the_first_one_says_so(
    monkeypatch: pytest.MonkeyPatch, is_said: bool
) -> None:
    monkeypatch.setattr(gang_following, "JOIN_S_MAX", 0.3)
    world = await members()
    other = world.other()
    if is_said:
        other.meet(await other_place(world))
    await other.open()
    async with asyncio.timeout(180):
        await other.others_ended.wait()
    end = await other.settle(LEFT)
    assert (end.cause, end.faulty_node, end.is_forwarded) == ("bad_node", "b", False)
    fix = "Set TUNERY_NODE_FABRIC of a"
    assert (fix if is_said else "a did not say how it is reached") in (end.message or "")
    await world.close()


async def test_what_it_fails_with_before_it_has_joined_it_reports_itself() -> None:
    world = await members()
    end = await world.other().settle(ProcessEnd("failed", "bad_node", "the base is missing"))
    assert (end.cause, end.faulty_node, end.is_forwarded) == ("bad_node", "b", False)
    await world.close()
