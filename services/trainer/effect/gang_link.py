"""A connection between the agents of two members of a lease, and what they say on it.

A line of JSON is a frame. The connection is not encrypted, as that of the ranks is not: nodes whose
operator calls their fabric trusted have one. Each end says every `PING_S` that it is there; one of
which nothing is read for `SILENT_S_MAX` counts as gone.
"""

import asyncio
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from schemas.training import AttemptOutcome, FailureCause

PING_S: Final = 2.0
SILENT_S_MAX: Final = 20.0
CLOSE_S_MAX: Final = 2.0


class Rendezvous(Struct, frozen=True):
    """Address of a lease's first member, readable by the other members alone."""

    host: str  # address of its fabric
    port: int  # port of its agent
    store_port: int  # port of rank 0's store
    secret: str  # secret by which the agents of the others prove that they can read this


class Hello(Struct, frozen=True, tag="hello"):
    """The first message of a member: its name, and its secret of the lease."""

    secret: str
    node_id: str
    incarnation: str


class MemberEnd(Struct, frozen=True, tag="end"):
    """Message with which a member's work ended; fields as those of `ProcessEnd`."""

    outcome: AttemptOutcome
    cause: FailureCause | None
    message: str | None
    rank: int | None
    is_left: bool


class Ping(Struct, frozen=True, tag="ping"):
    """Ping: this end of the connection is alive."""


Frame: TypeAlias = Hello | MemberEnd | Ping
_DECODER: Final = msgspec.json.Decoder(Frame)
#: what reading from a link, or what was read, may raise; ValueError: a line is too long
LINK_ERRORS: Final = (OSError, EOFError, TimeoutError, ValueError, msgspec.MsgspecError)


class GangLink:
    """One end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._pinging: asyncio.Task[None] | None = None

    def keep_alive(self) -> None:
        """Send pings from now on."""
        self._pinging = asyncio.create_task(self._ping())

    async def send(self, frame: Frame) -> None:
        """Send one frame. Raises OSError."""
        if self._writer.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._writer.write(msgspec.json.encode(frame) + b"\n")
        await self._writer.drain()

    async def receive(self) -> Hello | MemberEnd:
        """The next frame that is no ping. Raises one of `LINK_ERRORS`."""
        while True:
            try:
                async with asyncio.timeout(SILENT_S_MAX):
                    line = await self._reader.readline()
            except TimeoutError:
                raise TimeoutError(f"nothing was heard for {SILENT_S_MAX:.0f} s") from None
            if not line.endswith(b"\n"):
                raise EOFError("the connection has ended")
            frame: Frame = _DECODER.decode(line)
            if not isinstance(frame, Ping):
                return frame

    async def close(self) -> None:
        """Send nothing more, and close the connection once all is sent."""
        if self._pinging is not None:
            self._pinging.cancel()
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_S_MAX):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self._writer.transport.abort()

    async def _ping(self) -> None:
        try:
            while True:
                await self.send(Ping())
                await asyncio.sleep(PING_S)
        except OSError:
            return  # who reads from the connection notices
