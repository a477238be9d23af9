import pytest_asyncio

from services.gateway.views.ports import Views
from services.gateway.views.reading import views_of
from tests.contract.views_suite import ViewsSuite, fill
from tunery.runtime.store.memory import MemoryStore


class TestStoreViews(ViewsSuite):
    """The suite, over the rows of a store in memory."""

    @pytest_asyncio.fixture
    async def views(self) -> Views:
        store = MemoryStore()
        await fill(store)
        return views_of(store)
