"""`Views` over the rows of a store in memory."""

import pytest_asyncio

from services.gateway.adapters.views import StoreViews, views_of
from services.gateway.ports import Views
from tests.unit.services.gateway.adapters.views_suite import ViewsSuite, fill
from tunery.runtime.store.memory import MemoryStore


class TestStoreViews(ViewsSuite):
    @pytest_asyncio.fixture
    async def views(self) -> Views:
        store = MemoryStore()
        await fill(store)
        return views_of(store)


def test_a_store_in_memory_is_read_row_by_row() -> None:
    assert isinstance(views_of(MemoryStore()), StoreViews)
