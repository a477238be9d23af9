"""A connection between the agents of two members of a lease, and what they say on it.

It is TLS in which both ends show a certificate of the lease. Each end says every `PING_S` that it
is there; one of which nothing is read for `SILENT_S_MAX` counts as gone.
"""

import asyncio
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from schemas.training import AttemptOutcome, FailureCause
from tunery.ranks.carrying import RankGone, RankPart
from tunery.ranks.joining import PART_BYTES

PING_S: Final = 2.0
SILENT_S_MAX: Final = 20.0
CLOSE_S_MAX: Final = 2.0
LENGTH_BYTES: Final = 4
FRAME_BYTES_MAX: Final = PART_BYTES + (1 << 16)  # a part, or words of a failure
CHUNK_BYTES: Final = 1 << 16


class Rendezvous(Struct, frozen=True):
    """How agents of the other members of a lease reach that of the first.

    host, port: where it listens.
    certificate: what it shows, in PEM; nobody else signed it.
    client, client_key: what it has to be shown, in PEM.
    """

    host: str
    port: int
    certificate: str
    client: str
    client_key: str


class Hello(Struct, frozen=True, tag="hello", array_like=True):
    """Who connects, and under which fencing token."""

    pool: str
    lease: int
    node_id: str
    incarnation: str


class MemberEnd(Struct, frozen=True, tag="end", array_like=True):
    """What the work of a member ended with: fields as those of `ProcessEnd`."""

    outcome: AttemptOutcome
    cause: FailureCause | None
    message: str | None
    rank: int | None
    is_left: bool


class Ping(Struct, frozen=True, tag="ping", array_like=True):
    """An end is there."""


Frame: TypeAlias = Hello | RankPart | RankGone | MemberEnd | Ping
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Frame)
#: what reading from a link, or what was read, may raise
LINK_ERRORS: Final = (OSError, EOFError, TimeoutError, msgspec.MsgspecError)


class GangLink:
    """One end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._one_at_a_time = asyncio.Lock()
        self._pinging: asyncio.Task[None] | None = None

    def keep_alive(self) -> None:
        """Say from here on that this end is there."""
        self._pinging = asyncio.create_task(self._ping())

    async def send(self, frame: Frame) -> None:
        """Send one frame. Raises OSError."""
        content = _ENCODER.encode(frame)
        async with self._one_at_a_time:
            if self._writer.is_closing():
                raise ConnectionResetError("the connection is closed")
            self._writer.write(len(content).to_bytes(LENGTH_BYTES, "big") + content)
            await self._writer.drain()

    async def receive(self) -> Frame:
        """The next frame that is no ping. Raises one of `LINK_ERRORS`."""
        while True:
            size = int.from_bytes(await self._read(LENGTH_BYTES), "big")
            if size > FRAME_BYTES_MAX:
                raise EOFError(f"a frame of {size} bytes")
            frame: Frame = _DECODER.decode(await self._read(size))
            if not isinstance(frame, Ping):
                return frame

    async def close(self) -> None:
        """Say nothing more, and end the connection once all is sent."""
        if self._pinging is not None:
            self._pinging.cancel()
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_S_MAX):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self._writer.transport.abort()

    async def _read(self, size: int) -> bytes:
        content = bytearray()
        while len(content) < size:
            try:
                async with asyncio.timeout(SILENT_S_MAX):
                    chunk = await self._reader.read(min(CHUNK_BYTES, size - len(content)))
            except TimeoutError:
                raise TimeoutError(f"nothing was heard for {SILENT_S_MAX:.0f} s") from None
            if not chunk:
                raise EOFError("the connection has ended")
            content += chunk
        return bytes(content)

    async def _ping(self) -> None:
        try:
            while True:
                await self.send(Ping())
                await asyncio.sleep(PING_S)
        except OSError:
            return  # who reads from the connection notices
