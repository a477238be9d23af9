"""The member of a lease that is on this node, where the lease has several.

The ranks of a training are numbered over the members in the order of the lease. Each agent starts
those of its own; they meet at rank 0, and reach each other by the fabric of the nodes. The agent of
the first member listens; those of the others connect to it, and all say how their ranks ended. It
alone reports how the lease ended.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

from schemas.pool import LeaseMember
from schemas.sealed import Sealed
from schemas.units import Ms
from services.trainer.domain.state import Grant
from services.trainer.effect.gang_link import MemberEnd
from services.trainer.effect.process_end import ProcessEnd
from services.trainer.ports import Access
from tunery.ranks.launching import RankLayout

JOIN_S_MAX: Final = 60.0  # from the grant until the agents of all members are connected
SETTLE_S_MAX: Final = 15.0  # until the other members have ended as well
MESSAGE_MAX: Final = 8_000  # characters of a failure that the others receive


class Gang(ABC):
    """A member. Ranks of this node may start once `placed` has returned.

    interface: network interface of the fabric
    """

    leads: bool  # whether it is the first member of the lease

    def __init__(self, grant: Grant, interface: str) -> None:
        self.grant, self.interface = grant, interface
        self.ranks = ranks_of(grant.members)
        self.ended_ms: Ms = 0
        self.others_ended = asyncio.Event()

    @abstractmethod
    async def open(self) -> None:
        """Begin to meet the other members. Raises WorkError."""

    @abstractmethod
    async def store(self) -> str:
        """Return the address of rank 0's store, as in `RankLayout`; empty: it was not reached."""

    @abstractmethod
    def stop_waiting(self) -> None:
        """Wait for no other member: the lease has ended before the ranks of this node started."""

    async def placed(self, access: Access) -> Access:
        """Return what the ranks of this node need, once it is known where they meet the others."""
        here = self.ranks[self.grant.node_id]
        devices = access.ranks.devices if access.ranks is not None else ()
        layout = RankLayout(
            self.grant.placement.slots,
            here,
            node=[*self.ranks].index(self.grant.node_id),
            store=await self.store(),
            interface=self.interface,
            devices=devices[here.start : here.stop],
        )
        return replace(access, ranks=layout)

    @abstractmethod
    async def settle(self, own: ProcessEnd) -> ProcessEnd:
        """The end of the lease, from that of this member: what is reported, and by whom."""

    @abstractmethod
    async def close(self) -> None:
        """End all connections."""

    @abstractmethod
    def meet(self, rendezvous: Sealed) -> None:
        """Take the address of the first member."""


def ranks_of(members: Sequence[LeaseMember]) -> dict[str, range]:
    """Return the ranks on each node of a lease: one for each slot."""
    ends = list(accumulate(member.slots for member in members))
    return {
        member.node_id: range(end - member.slots, end)
        for member, end in zip(members, ends, strict=True)
    }


def end_to_tell(end: ProcessEnd) -> MemberEnd:
    """Convert the end of a member's work into the message for the first member."""
    message = end.message and end.message[:MESSAGE_MAX]
    return MemberEnd(end.outcome, end.cause, message, end.rank, end.is_left)
