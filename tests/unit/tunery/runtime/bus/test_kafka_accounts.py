"""Accounts without a broker; `tests/integration` has them on a real one."""

import pytest

from tunery.runtime.bus.abstract import Unavailable
from tunery.runtime.bus.grants import grants_of
from tunery.runtime.bus.kafka_accounts import Account, provide_accounts


async def test_a_broker_that_is_not_there_is_named() -> None:
    account = Account(grants_of("gateway"), "pass-word")
    assert "pass-word" not in repr(account)
    with pytest.raises(Unavailable, match=r"accounts of Kafka at 127\.0\.0\.1:1"):
        await provide_accounts({}, "127.0.0.1", 1, {"gateway": account})
