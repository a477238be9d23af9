"""A member of a lease that is not the first: it connects to that one's agent."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from schemas.sealed import Sealed
from services.trainer.domain.state import Grant
from services.trainer.effect.gang import JOIN_S_MAX, Gang, end_to_tell
from services.trainer.effect.gang_link import LINK_ERRORS, GangLink, Hello, MemberEnd, Rendezvous
from services.trainer.effect.lease_certificates import LeaseCertificate, client_context
from services.trainer.effect.process_end import ProcessEnd
from tunery.ranks.carrying import Carried, CarriedWrong, RankGone, RankPart
from tunery.runtime.ports import Runtime
from tunery.runtime.seal.abstract import KeyStoreBroken, SealBroken
from tunery.runtime.telemetry.logs import log_event

TRY_S: Final = 1.0  # between two tries to connect
LOG: Final = logging.getLogger(__name__)


class FollowingGang(Gang):
    """Tells the first member how this one ended; that one reports it.

    Where it never reached the first member, this one reports its own end.
    """

    leads = False

    def __init__(self, grant: Grant, incarnation: str, runtime: Runtime) -> None:
        super().__init__(grant)
        self._incarnation, self._runtime = incarnation, runtime
        self._first = grant.members[0].node_id
        self._rendezvous: asyncio.Future[Sealed] | None = None
        self._known: Sealed | None = None
        self._link: GangLink | None = None
        self._meeting: asyncio.Task[None] | None = None
        self._problem = ""
        self._has_met = asyncio.Event()  # or will not

    def meet(self, rendezvous: Sealed) -> None:
        """Take how the first member is reached."""
        self._known = rendezvous
        if self._rendezvous is not None and not self._rendezvous.done():
            self._rendezvous.set_result(rendezvous)

    async def open(self, folder: Path) -> None:
        """Begin to connect; ranks may start meanwhile."""
        self._rendezvous = asyncio.get_running_loop().create_future()
        if self._known is not None:
            self._rendezvous.set_result(self._known)
        self._meeting = asyncio.create_task(self._meet(folder))

    async def carry(self, carried: Carried) -> None:
        """Send it to the first member, which passes it on."""
        await self._has_met.wait()
        if self._link is not None:
            with suppress(OSError):  # who reads from the connection notices
                await self._link.send(carried)

    async def settle(self, own: ProcessEnd) -> ProcessEnd:
        """Tell the first member; where it was never reached, say so to the pool."""
        if self._link is not None:
            with suppress(OSError):
                await self._link.send(end_to_tell(own))
            return replace(own, is_forwarded=True)
        if own.is_left and self._problem:
            own = ProcessEnd("failed", "bad_node", self._problem)
        is_its_fault = own.outcome == "failed" and not own.keyless
        return replace(own, faulty_node=self.grant.node_id if is_its_fault else None)

    async def close(self) -> None:
        """End the connection, after all that was sent."""
        if self._meeting is not None:
            self._meeting.cancel()
            await asyncio.gather(self._meeting, return_exceptions=True)
        if self._link is not None:
            await self._link.close()
        await self.carrier.close()

    async def _meet(self, folder: Path) -> None:
        try:
            async with asyncio.timeout(JOIN_S_MAX):
                link = await self._connect(folder)
            self._link = link
            self._has_met.set()
            link.keep_alive()
            while not isinstance(frame := await link.receive(), MemberEnd):
                if isinstance(frame, RankPart | RankGone):
                    await self.carrier.deliver(frame)
            if frame.outcome in ("succeeded", "preempted"):
                await asyncio.Event().wait()  # ranks here end by themselves: until `close`
        except (*LINK_ERRORS, CarriedWrong) as error:
            self._problem = self._problem or f"{self._first} is not reached: {error}"
            log_event(LOG, logging.WARNING, "gang.lost", node=self._first, why=self._problem)
        self.others_ended.set()
        self._has_met.set()
        with suppress(CarriedWrong):
            await self.carrier.end_all()

    async def _connect(self, folder: Path) -> GangLink:
        """Connect to the first member. Raises one of `LINK_ERRORS`."""
        assert self._rendezvous is not None, "opened"  # noqa: S101  # set in `open`
        self._problem = f"{self._first} did not say how it is reached"
        sealed = await self._rendezvous
        try:
            text = self._runtime.seal.open(sealed, "rendezvous")
        except (KeyStoreBroken, SealBroken) as error:  # the key was rotated between two members
            self._problem = str(error)
            raise EOFError from error
        meeting = msgspec.json.decode(text, type=Rendezvous)
        own = LeaseCertificate(meeting.client, meeting.client_key)
        context = client_context(folder, own, meeting.certificate)
        while True:
            try:
                streams = await asyncio.open_connection(meeting.host, meeting.port, ssl=context)
                break
            except OSError as error:
                at = f"{meeting.host}:{meeting.port}"
                self._problem = (
                    f"{self.grant.node_id} does not reach {self._first} at {at}: {error}. Set "
                    f"TUNERY_NODE_GANG_HOST and TUNERY_NODE_GANG_AS of {self._first}"
                )
                await asyncio.sleep(TRY_S)
        self._problem = ""
        link, token = GangLink(*streams), self.grant.token
        await link.send(Hello(token.pool, token.lease, self.grant.node_id, self._incarnation))
        return link
