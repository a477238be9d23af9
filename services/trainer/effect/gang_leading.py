"""First member of a lease: the others connect to it, and it reports the end of all."""

import asyncio
import fcntl
import hmac
import logging
import secrets
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import msgspec

from schemas.pool import LeaseMember, ReportRendezvous
from schemas.sealed import Sealed
from services.trainer.domain.state import Grant
from services.trainer.effect.gang import JOIN_S_MAX, SETTLE_S_MAX, Gang, end_to_tell
from services.trainer.effect.gang_link import LINK_ERRORS, GangLink, Hello, MemberEnd, Rendezvous
from services.trainer.effect.process_end import ProcessEnd
from services.trainer.ports import Reporting
from tunery.platform.ports import Runtime
from tunery.runtime.telemetry.logs import log_event
from tunery.work.exits import WorkError

HELLO_S_MAX: Final = 10.0
LATE_S: Final = 5.0  # beyond the time to join: a member that tried says first which address
SECRET_BYTES: Final = 32
ADDRESS_OF_INTERFACE: Final = 0x8915  # SIOCGIFADDR
LOG: Final = logging.getLogger(__name__)


class LeadingGang(Gang):
    """Listens for the other members.

    incarnation: incarnation of this agent
    """

    leads = True

    def __init__(
        self,
        grant: Grant,
        interface: str,
        incarnation: str,
        runtime: Runtime,
        reports: Reporting,
    ) -> None:
        super().__init__(grant, interface)
        self._incarnation, self._runtime, self._reports = incarnation, runtime, reports
        self._secret = secrets.token_urlsafe(SECRET_BYTES)
        self._store = ""
        self._others = {m.node_id: m for m in grant.members if m.node_id != grant.node_id}
        self._links: dict[str, GangLink] = {}
        self._ends: dict[str, ProcessEnd] = {}
        self._all_ended = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._joining: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Listen, and announce the address to the others. Raises WorkError where it cannot
        listen.
        """
        grant = self.grant
        try:
            host = address_of(self.interface)
            self._server = await asyncio.start_server(self._serve, host, 0)
            with socket.create_server((host, 0)) as probe:
                store_port: int = probe.getsockname()[1]
        except OSError as error:
            message = f"{grant.node_id} cannot listen at its interface {self.interface!r}: {error}"
            advice = "Set TUNERY_NODE_FABRIC to an interface that is up and has an IPv4 address."
            raise WorkError("bad_node", message, advice) from error
        port: int = self._server.sockets[0].getsockname()[1]
        self._store = f"tcp://{host}:{store_port}"
        meeting = Rendezvous(host, port, store_port, self._secret)
        text = msgspec.json.encode(meeting).decode()
        sealed = self._runtime.seal.seal(grant.tenant, text, "rendezvous")
        report = ReportRendezvous(
            token=grant.token, incarnation=self._incarnation, rendezvous=sealed
        )
        await self._reports.fact(report, grant.tenant)
        self._joining = asyncio.create_task(self._give_up_joining())

    def meet(self, rendezvous: Sealed) -> None:
        """Do nothing: the address is this member's own."""

    def stop_waiting(self) -> None:
        """Do nothing: the first member starts its ranks without the others."""

    async def store(self) -> str:
        return self._store

    async def settle(self, own: ProcessEnd) -> ProcessEnd:
        """Wait until the others have ended, and return the end of the lease as a whole."""
        await self._tell_all(own)
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S_MAX):
                if self._links:
                    await self._all_ended.wait()
        return verdict(self.grant.node_id, own, self._ends, self.ranks)

    async def close(self) -> None:
        """Listen no more, and end all connections."""
        if self._server is not None:
            self._server.close()
        tasks = [*self._serving, *filter(None, (self._joining,))]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _give_up_joining(self) -> None:
        await asyncio.sleep(JOIN_S_MAX + LATE_S)
        for node_id in self._others.keys() - self._links.keys():
            text = f"{node_id} did not join the other nodes within {JOIN_S_MAX:.0f} s"
            await self._lose(node_id, ProcessEnd("failed", "bad_node", text))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a task serves a connection"  # noqa: S101  # asyncio makes one
        self._serving.add(task)
        link = GangLink(reader, writer)
        try:
            member = await self._member_of(link)
            if member is not None:
                await self._follow(member.node_id, link)
        except asyncio.CancelledError:  # by `close`; what asyncio calls next would raise it again
            pass
        finally:
            self._serving.discard(task)
            await link.close()

    async def _member_of(self, link: GangLink) -> LeaseMember | None:
        """Return the member that a connection authenticates as; None if it is refused.

        A stranger is refused, and so is a member that has already connected.
        """
        try:
            async with asyncio.timeout(HELLO_S_MAX):
                hello = await link.receive()
        except LINK_ERRORS:
            return None
        if isinstance(hello, Hello) and hmac.compare_digest(hello.secret, self._secret):
            member = self._others.get(hello.node_id)
            is_new = hello.node_id not in self._links and hello.node_id not in self._ends
            if member is not None and is_new and member.incarnation == hello.incarnation:
                return member
        lease = self.grant.token.lease
        log_event(LOG, logging.WARNING, "gang.connection_refused", lease=lease)
        return None

    async def _follow(self, node_id: str, link: GangLink) -> None:
        """Follow a member to its end or that of its connection."""
        self._links[node_id] = link
        log_event(LOG, logging.INFO, "gang.joined", node=node_id, lease=self.grant.token.lease)
        link.keep_alive()
        try:
            while not isinstance(frame := await link.receive(), MemberEnd):
                pass
        except LINK_ERRORS as error:
            text = f"the connection to {node_id} was lost: {error}"
            await self._lose(node_id, ProcessEnd("failed", "platform", text))
            return
        end = ProcessEnd(
            frame.outcome, frame.cause, frame.message, rank=frame.rank, is_left=frame.is_left
        )
        await self._note_end(node_id, end)

    async def _lose(self, node_id: str, end: ProcessEnd) -> None:
        """Record a member that is gone without a report, and its ranks with it."""
        log_event(LOG, logging.WARNING, "gang.member_lost", node=node_id, why=end.message)
        await self._note_end(node_id, ProcessEnd("lost", end.cause, end.message))

    async def _note_end(self, node_id: str, end: ProcessEnd) -> None:
        self._ends.setdefault(node_id, end)
        self.ended_ms = self._runtime.clock.monotonic_ms()
        if end.outcome not in ("succeeded", "preempted"):
            self.others_ended.set()
            await self._tell_all(end)
        if self._ends.keys() >= self._links.keys():
            self._all_ended.set()

    async def _tell_all(self, end: ProcessEnd) -> None:
        """Tell the members that still run how another one ended."""
        for node_id, link in list(self._links.items()):
            if node_id not in self._ends:
                with suppress(OSError):  # who reads from the connection notices
                    await link.send(end_to_tell(end))


def address_of(interface: str) -> str:
    """The IPv4 address of a network interface. Raises OSError."""
    request = struct.pack("16s16x", interface.encode())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, ADDRESS_OF_INTERFACE, request)
    return socket.inet_ntoa(answer[20:24])


def verdict(
    first: str, own: ProcessEnd, others: Mapping[str, ProcessEnd], ranks: Mapping[str, range]
) -> ProcessEnd:
    """How a lease ended, from the ends of its members.

    first: the node of the first member, whose end is `own`
    others: "lost" after its silence
    ranks: ranks by node

    What a member failed with by itself comes first, then one that was lost, then one that was asked
    to end. Ranks that only lost others are no reason.
    """
    if own.outcome != "failed" or own.keyless:
        return own
    ends = {first: own, **others}
    for node_id, end in ends.items():
        if end.outcome == "failed" and not end.is_left:
            return _failure_of(node_id, end, first, ranks)
    for node_id, end in ends.items():
        if end.outcome == "lost":
            return ProcessEnd("failed", end.cause, end.message, faulty_node=node_id)
    return next((end for end in ends.values() if end.outcome != "failed"), own)


def _failure_of(
    node_id: str, end: ProcessEnd, first: str, ranks: Mapping[str, range]
) -> ProcessEnd:
    differing = [name for name, numbers in ranks.items() if end.rank in numbers]
    if differing and differing != [first]:  # it is another machine that differs
        text = f"on {differing[0]}: {end.message}"
        return ProcessEnd("failed", "bad_node", text, faulty_node=differing[0])
    return ProcessEnd("failed", end.cause, f"on {node_id}: {end.message}", faulty_node=node_id)
