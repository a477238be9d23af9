import pytest

from services.gateway.ports import Rates
from services.gateway.web.rate_limits import LocalRates
from tests.contract.rates_suite import RatesSuite


@pytest.fixture
async def rates() -> Rates:
    return LocalRates()


class TestLocalRates(RatesSuite):
    """The suite, in this process."""
