"""Methods that the port of views implements itself."""

from services.gateway.views.reading import views_of
from services.gateway.views.tables.files import FILES
from tests.contract.views_suite import fill
from tunery.runtime.store.memory import MemoryStore


async def test_the_first_row_is_the_oldest_that_matches() -> None:
    store = MemoryStore()
    await fill(store)
    views = views_of(store)
    first = await views.first(FILES, {"tenant": "a"})
    assert first is not None
    assert first.id == "file-1"
    assert await views.first(FILES, {"tenant": "nobody"}) is None
