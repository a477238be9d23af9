"""Listening without a server: with one it is tested in tests/integration."""

import asyncio

from tunery.platform.store.listening import listen

NO_SERVER = "postgresql://someone@127.0.0.1:1/tunery"


async def test_a_listener_begins_and_ends_although_there_is_no_server() -> None:
    notices: list[str] = []
    async with asyncio.timeout(180), listen(NO_SERVER, "todos", notices.append):
        assert notices == []
