import pytest

from tests.contract.bus_suite import OperatedBusSuite
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.tools.archived_log import Archive, ArchivedLog


class TestMemoryLog(OperatedBusSuite):
    @pytest.fixture
    def log(self) -> MemoryLog:
        return MemoryLog()


class TestArchivedLog(OperatedBusSuite):
    @pytest.fixture
    def log(self) -> ArchivedLog:
        return ArchivedLog(MemoryLog(), Archive(MemoryBlobs), {})
