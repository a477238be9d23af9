import pytest

from tests.contract.store_suite import StoreSuite
from tunery.runtime.work.memory import MemoryStore


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


class TestMemoryStore(StoreSuite):
    """The suite, in memory."""
