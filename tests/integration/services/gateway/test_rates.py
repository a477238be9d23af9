"""Rate limits in a real Valkey: gateways share a bucket, and keys of full buckets expire."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
import redis.asyncio

from services.gateway.ports import Rates
from services.gateway.web import rate_limits
from services.gateway.web.rate_limits import PREFIX, ValkeyRates
from tests.contract.rates_suite import RatesSuite
from tunery.local.stack import Stack


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Valkey may be slow here: what is tested is what it answers, not how soon."""
    monkeypatch.setattr(rate_limits, "ANSWER_MS_MAX", 10_000)


@pytest.fixture
async def rates(servers: Stack) -> AsyncIterator[Rates]:
    shared = ValkeyRates(servers.valkey_url)
    yield shared
    await shared.close()


class TestValkey(RatesSuite):
    pass


async def test_two_gateways_share_a_bucket(servers: Stack) -> None:
    first, second = ValkeyRates(servers.valkey_url), ValkeyRates(servers.valkey_url)
    name = uuid4().hex
    asked = [item.take(name, 20) for _ in range(20) for item in (first, second)]
    allowances = [await item for item in asked]
    allowed = sum(item.allowed for item in allowances)
    assert 20 <= allowed <= 21  # one may have come back meanwhile
    await asyncio.gather(first.close(), second.close())


async def test_the_key_of_a_full_bucket_expires(servers: Stack) -> None:
    rates, name = ValkeyRates(servers.valkey_url), uuid4().hex
    await rates.take(name, 60)
    client = redis.asyncio.from_url(servers.valkey_url)
    left_ms = await client.pttl(PREFIX + name)
    assert 0 < left_ms <= 61_000
    await asyncio.gather(client.aclose(), rates.close())
