import pytest

from tests.contract.bus_suite import BusSuite
from tunery.runtime.bus.memory import MemoryLog


class TestMemoryLog(BusSuite):
    @pytest.fixture
    def log(self) -> MemoryLog:
        return MemoryLog()
