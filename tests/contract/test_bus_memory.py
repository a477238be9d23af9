import pytest

from tests.contract.bus_suite import OperatedBusSuite
from tunery.runtime.bus.memory import MemoryLog


class TestMemoryLog(OperatedBusSuite):
    @pytest.fixture
    def log(self) -> MemoryLog:
        return MemoryLog()
