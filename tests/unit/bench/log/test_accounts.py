"""Benchmark of accounts: cost of beginning an append, and time of a new connection."""

from typing import Any

import pytest

from bench.log import accounts
from bench.log.appends import BARE
from bench.log.jobs import PARTITION


class Producer:
    """Keeps what is sent; `stopped`: how many of its connections were closed."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes, int]] = []
        self.stopped = 0

    async def send(self, topic: str, value: bytes, partition: int) -> str:
        self.sent.append((topic, value, partition))
        return "pending"

    async def stop(self) -> None:
        self.stopped += 1


async def test_an_append_is_begun_and_awaited_by_the_caller() -> None:
    producer = Producer()
    pending: Any = await accounts.sender(producer)()
    assert pending == "pending"
    assert producer.sent == [(BARE.name, accounts.VALUE, PARTITION)]


async def test_each_measured_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Producer()

    async def connect(_: Any) -> Producer:
        return producer

    monkeypatch.setattr(accounts, "connect", connect)

    class Settings:
        client_options: dict[str, str] = {}  # noqa: RUF012  # read alone

    settings: Any = Settings()
    assert await accounts.connect_ms(settings) >= 0
    assert producer.stopped == accounts.CONNECTIONS
