"""The contract of `Rates`."""

from uuid import uuid4

from services.gateway.ports import Rates
from services.gateway.web.domain.token_bucket import MINUTE_US


class RatesSuite:
    async def test_an_empty_bucket_says_when_a_token_is_available(self, rates: Rates) -> None:
        name = uuid4().hex
        allowances = [await rates.take(name, 2) for _ in range(3)]
        assert [allowance.allowed for allowance in allowances] == [True, True, False]
        assert [allowance.remaining for allowance in allowances] == [1, 0, 0]
        assert 0 < allowances[2].retry_ms <= 30_000 < allowances[2].reset_ms <= 60_000

    async def test_a_bucket_may_refill_within_an_hour(self, rates: Rates) -> None:
        name = uuid4().hex
        allowances = [await rates.take(name, 2, 60 * MINUTE_US) for _ in range(3)]
        assert [allowance.allowed for allowance in allowances] == [True, True, False]
        assert 29 * 60_000 < allowances[2].retry_ms <= 30 * 60_000

    async def test_buckets_are_apart(self, rates: Rates) -> None:
        first, second = uuid4().hex, uuid4().hex
        assert (await rates.take(first, 1)).allowed
        assert not (await rates.take(first, 1)).allowed
        assert (await rates.take(second, 1)).allowed
