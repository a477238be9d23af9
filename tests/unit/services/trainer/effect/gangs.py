"""The two members of a lease, each with its agent's part of it, over the log in memory."""

import asyncio
from dataclasses import dataclass, field

from msgspec.structs import replace

from schemas.envelope import Message
from schemas.pool import LeaseMember, ReportRendezvous
from services.trainer.domain.state import Grant
from services.trainer.effect.gang_following import FollowingGang
from services.trainer.effect.gang_leading import LeadingGang
from services.trainer.effect.reports import Reports
from tests.unit.services.trainer.domain.test_evolve import grant
from tunery.platform.memory_servers import memory_servers
from tunery.platform.ports import Runtime
from tunery.ranks.launching import LOOPBACK

MEMBERS = (
    LeaseMember(node_id="a", incarnation="a1", slots=2, devices=(0, 1)),
    LeaseMember(node_id="b", incarnation="b1", slots=1, devices=(0,)),
)


def grant_of(number: int) -> Grant:
    """What the agent of a member is granted."""
    own = grant()
    return replace(
        own,
        member=MEMBERS[number],
        members=MEMBERS,
        placement=replace(own.placement, role="train", slots=3),
        lease=replace(own.lease, role="train"),
    )


class KeptFacts(Reports):
    """Keeps what the pool would be told."""

    facts: list[Message]

    async def fact(self, body: Message, tenant: str = "") -> None:
        self.facts.append(body)


@dataclass
class Members:
    """The first member, and what the others are to be told."""

    runtime: Runtime
    first: LeadingGang
    reports: KeptFacts
    others: list[FollowingGang] = field(default_factory=list)

    async def open(self) -> ReportRendezvous:
        await self.first.open()
        (report,) = self.reports.facts
        assert isinstance(report, ReportRendezvous)
        return report

    def other(self, incarnation: str = "b1") -> FollowingGang:
        self.others.append(FollowingGang(grant_of(1), LOOPBACK, incarnation, self.runtime))
        return self.others[-1]

    async def join(self) -> FollowingGang:
        """The second member, connected."""
        report, other = await self.open(), self.other()
        other.meet(report.rendezvous)
        await other.open()
        async with asyncio.timeout(180):
            assert await other.store() == await self.first.store()
            while not self.first._links:  # noqa: ASYNC110  # nothing else says so
                await asyncio.sleep(0.01)
        return other

    async def close(self) -> None:
        for each in (*self.others, self.first):
            await each.close()


async def members() -> Members:
    runtime = (await memory_servers()).runtime("trainer")
    reports = KeptFacts(runtime, "default")
    reports.facts = []
    first = LeadingGang(grant_of(0), LOOPBACK, "a1", runtime, reports)
    return Members(runtime, first, reports)
