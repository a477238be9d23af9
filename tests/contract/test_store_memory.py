import pytest

from tests.contract.store_suite import StoreSuite
from tunery.runtime.store.memory import MemoryStore


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


class TestMemoryStore(StoreSuite):
    """The suite, in memory."""
