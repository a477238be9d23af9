"""A connection between two agents: what is said arrives, and an end that is silent is noticed."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from services.trainer.effect import gang_link
from services.trainer.effect.gang_link import LINK_ERRORS, GangLink, Hello, MemberEnd

END = MemberEnd("failed", "oom", "memory\nran out" * 100, 2, is_left=False)


@pytest.fixture
async def links() -> AsyncIterator[tuple[GangLink, GangLink]]:
    """Two ends."""
    accepted = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(
        lambda reader, writer: accepted.set_result((reader, writer)), "127.0.0.1", 0
    )
    port = server.sockets[0].getsockname()[1]
    first = GangLink(*await asyncio.open_connection("127.0.0.1", port))
    second = GangLink(*await accepted)
    yield first, second
    await asyncio.gather(first.close(), second.close())
    server.close()


async def test_frames_arrive_as_they_were_sent(
    links: tuple[GangLink, GangLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gang_link, "PING_S", 0.01)
    first, second = links
    first.keep_alive()
    frames = (Hello("secret", "b", "b1"), END)
    for frame in frames:
        await first.send(frame)
        await asyncio.sleep(0.03)  # pings come between
    assert [await second.receive() for _ in frames] == list(frames)


async def test_an_end_that_says_nothing_or_is_gone_is_noticed(
    links: tuple[GangLink, GangLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gang_link, "SILENT_S_MAX", 0.1)
    first, second = links
    with pytest.raises(TimeoutError, match="nothing was heard"):
        await second.receive()
    await first.close()
    with pytest.raises(EOFError, match="has ended"):
        await second.receive()
    with pytest.raises(OSError, match="is closed"):
        await first.send(END)


async def test_a_frame_that_is_too_large_is_not_read(links: tuple[GangLink, GangLink]) -> None:
    first, second = links
    first._writer.write(bytes(1 << 18) + b"\n")
    with pytest.raises(LINK_ERRORS):
        await second.receive()
