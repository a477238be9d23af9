"""`Views` over the rows of a store in memory."""

from services.gateway.views.reading import StoreViews, views_of
from tunery.runtime.store.memory import MemoryStore


def test_a_store_in_memory_is_read_row_by_row() -> None:
    assert isinstance(views_of(MemoryStore()), StoreViews)
