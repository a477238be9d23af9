"""`Views` over the rows of a store in memory."""

import pytest_asyncio

from services.gateway.ports import Views
from services.gateway.views.reading import StoreViews, views_of
from tests.contract.views_suite import ViewsSuite, fill
from tunery.runtime.store.memory import MemoryStore


class TestStoreViews(ViewsSuite):
    @pytest_asyncio.fixture
    async def views(self) -> Views:
        store = MemoryStore()
        await fill(store)
        return views_of(store)


def test_a_store_in_memory_is_read_row_by_row() -> None:
    assert isinstance(views_of(MemoryStore()), StoreViews)
