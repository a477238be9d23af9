"""A member of a lease that is not the first: it connects to that one's agent."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from typing import Final

import msgspec

from schemas.sealed import Sealed
from services.trainer.domain.state import Grant
from services.trainer.effect.gang import JOIN_S_MAX, Gang, end_to_tell
from services.trainer.effect.gang_link import LINK_ERRORS, GangLink, Hello, MemberEnd, Rendezvous
from services.trainer.effect.process_end import ProcessEnd
from tunery.platform.ports import Runtime
from tunery.platform.seal.abstract import KeyStoreBroken, SealBroken
from tunery.runtime.telemetry.logs import log_event

TRY_S: Final = 1.0  # between two tries to connect
LOG: Final = logging.getLogger(__name__)


class FollowingGang(Gang):
    """Sends the end of this member to the first one, which reports it.

    Where it never reached the first member, this one reports its own end.
    """

    leads = False

    def __init__(self, grant: Grant, interface: str, incarnation: str, runtime: Runtime) -> None:
        super().__init__(grant, interface)
        self._incarnation, self._runtime = incarnation, runtime
        self._first = grant.members[0].node_id
        self._rendezvous: asyncio.Future[Sealed] | None = None
        self._known: Sealed | None = None
        self._link: GangLink | None = None
        self._meeting: asyncio.Task[None] | None = None
        self._problem = self._store = ""
        self._has_met = asyncio.Event()  # or will not

    def meet(self, rendezvous: Sealed) -> None:
        """Take the address of the first member."""
        self._known = rendezvous
        if self._rendezvous is not None and not self._rendezvous.done():
            self._rendezvous.set_result(rendezvous)

    async def open(self) -> None:
        """Begin to connect."""
        self._rendezvous = asyncio.get_running_loop().create_future()
        if self._known is not None:
            self._rendezvous.set_result(self._known)
        self._meeting = asyncio.create_task(self._meet())

    def stop_waiting(self) -> None:
        self._has_met.set()

    async def store(self) -> str:
        await self._has_met.wait()
        return self._store

    async def settle(self, own: ProcessEnd) -> ProcessEnd:
        """Send the end to the first member; report to the pool if it was never reached."""
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

    async def _meet(self) -> None:
        try:
            async with asyncio.timeout(JOIN_S_MAX):
                link = await self._connect()
            self._link = link
            self._has_met.set()
            link.keep_alive()
            while not isinstance(frame := await link.receive(), MemberEnd):
                pass
            if frame.outcome in ("succeeded", "preempted"):
                await asyncio.Event().wait()  # ranks here end by themselves: until `close`
        except LINK_ERRORS as error:
            self._problem = self._problem or f"{self._first} is not reached: {error}"
            log_event(LOG, logging.WARNING, "gang.lost", node=self._first, why=self._problem)
        self.others_ended.set()
        self._has_met.set()

    async def _connect(self) -> GangLink:
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
        while True:
            try:
                streams = await asyncio.open_connection(meeting.host, meeting.port)
                break
            except OSError as error:
                at = f"{meeting.host}:{meeting.port}"
                self._problem = (
                    f"{self.grant.node_id} does not reach {self._first} at {at}: {error}. Set "
                    f"TUNERY_NODE_FABRIC of {self._first} to an interface of the network that both "
                    "are in, and let nodes reach each other there"
                )
                await asyncio.sleep(TRY_S)
        self._problem = ""
        link = GangLink(*streams)
        await link.send(Hello(meeting.secret, self.grant.node_id, self._incarnation))
        self._store = f"tcp://{meeting.host}:{meeting.store_port}"
        return link
