"""Accounts without a broker; `tests/integration` has them on a real one."""

from collections import Counter
from typing import Any
from unittest.mock import Mock

import pytest
from aiokafka.errors import SaslAuthenticationFailed

from tunery.platform.bus import kafka_accounts
from tunery.platform.bus.grants import grants_of
from tunery.platform.bus.kafka_accounts import Account, LoginRefused, await_logins, provide_accounts
from tunery.runtime.bus.abstract import Unavailable


async def test_a_broker_that_is_not_there_is_named() -> None:
    account = Account(grants_of("gateway"), "pass-word")
    assert "pass-word" not in repr(account)
    with pytest.raises(Unavailable, match=r"Kafka at 127\.0\.0\.1:1.*; Kafka at 127\.0\.0\.1:2"):
        await provide_accounts({}, "127.0.0.1:1,127.0.0.1:2", {"gateway": account})


class Brokers:
    """Brokers that learn of an account after a number of failed logins."""

    def __init__(self, refusals: int) -> None:
        self.logins = Counter[int]()
        self._refusals = refusals

    async def connect(self, _: str, port: int, **__: object) -> Any:
        self.logins[port] += 1
        if self.logins[port] <= self._refusals:
            raise SaslAuthenticationFailed("not yet")
        return Mock()


async def test_each_broker_is_awaited_until_it_lets_a_new_account_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers(refusals=2)
    monkeypatch.setattr(kafka_accounts, "create_conn", brokers.connect)
    await await_logins([{"sasl_plain_username": "node.a"}], "a.example:1,b.example:2")
    assert brokers.logins == {1: 3, 2: 3}


async def test_a_broker_that_never_lets_an_account_in_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_accounts, "create_conn", Brokers(refusals=1_000).connect)
    monkeypatch.setattr(kafka_accounts, "LOGIN_MS_MAX", 100)
    with pytest.raises(LoginRefused, match=r"Kafka at a\.example:1"):
        await await_logins([{}], "a.example:1")
