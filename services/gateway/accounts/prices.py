"""Price books on the log, as the gateway sees them."""

from schemas.billing import PriceBook
from services.gateway.views.ports import Views
from services.gateway.views.tables.accounts import PRICES
from tunery.billing.books import newest_book

BOOKS_MAX = 1_000


class ViewedPrices:
    """Implements `Prices`. Keeps the books that were asked for: a version never changes."""

    def __init__(self, views: Views) -> None:
        self._views = views
        self._books: dict[str, PriceBook] = {}

    async def book(self, version: str) -> PriceBook | None:
        book = self._books.get(version)
        if book is None:
            row = await self._views.first(PRICES, {"id": version})
            if row is None:
                return None
            book = self._books[version] = row.book
        return book

    async def newest(self, today: str) -> PriceBook | None:
        rows = await self._views.page(PRICES, {}, limit=BOOKS_MAX)
        return newest_book((row.book for row in rows), today)
