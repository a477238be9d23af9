"""The member of a lease that is on this node, where the lease has several.

The ranks of a training are numbered over the members in the order of the lease. Each agent starts
those of its own. The agent of the first member listens; those of the others connect to it, and it
passes on what ranks of one node tell those of another. It alone reports how the lease ended.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Final

from schemas.pool import LeaseMember
from schemas.sealed import Sealed
from schemas.units import Ms
from services.trainer.domain.state import Grant
from services.trainer.effect.gang_link import MemberEnd
from services.trainer.effect.process_end import ProcessEnd
from tunery.ranks.carrying import Carried, Carrier

JOIN_S_MAX: Final = 60.0  # from the grant until the agents of all members are connected
SETTLE_S_MAX: Final = 15.0  # until the other members have ended as well


class Gang(ABC):
    """A member. Ranks of this node may start once `open` has returned.

    leads: whether it is the first of the lease
    ended_ms: when the last other member ended, by this agent's monotonic clock; 0: none is known
    """

    leads: bool

    def __init__(self, grant: Grant) -> None:
        self.grant = grant
        self.ranks = ranks_of(grant.members)
        self.ended_ms: Ms = 0
        self.others_ended = asyncio.Event()
        self.carrier = Carrier(grant.placement.slots, self.ranks[grant.node_id], self.carry)

    @abstractmethod
    async def open(self, folder: Path) -> None:
        """Begin to meet the other members. Raises WorkError."""

    @abstractmethod
    async def carry(self, carried: Carried) -> None:
        """Send what a rank of this node told to where the others are."""

    @abstractmethod
    async def settle(self, own: ProcessEnd) -> ProcessEnd:
        """The end of the lease, from that of this member: what is reported, and by whom."""

    @abstractmethod
    async def close(self) -> None:
        """End all connections."""

    @abstractmethod
    def meet(self, rendezvous: Sealed) -> None:
        """Take how the first member is reached."""


def ranks_of(members: Sequence[LeaseMember]) -> dict[str, range]:
    """The ranks on each node of a lease: one for each slot."""
    ends = list(accumulate(member.slots for member in members))
    return {
        member.node_id: range(end - member.slots, end)
        for member, end in zip(members, ends, strict=True)
    }


def end_to_tell(end: ProcessEnd) -> MemberEnd:
    """What the first member is told of an end."""
    return MemberEnd(end.outcome, end.cause, end.message, end.rank, end.is_left)
