"""What every implementation of `Views` must do. Subclasses give `views`, filled with FILES."""

from typing import Any, Final

from schemas.units import Ms
from services.gateway.ports import Cursor, Views
from services.gateway.views.tables import DDL, FILES, VERSION, VIEWS
from tunery.runtime.journal.reader import Position
from tunery.runtime.store.abstract import Batch, Store, Tables
from tunery.runtime.verbs import Upsert

AT: Final[Ms] = 1_000
PLACE: Final = ("dataset", 0)


async def fill(store: Store) -> None:
    """Five files of one tenant, one of another."""
    names = tuple(table.name for table in VIEWS)
    await store.ensure(Tables("views", VERSION, (PLACE,), DDL, names))
    files = [("a", n) for n in range(1, 6)] + [("b", 9)]
    changes = [
        Upsert(
            "files",
            {"tenant": tenant, "id": f"file-{number}"},
            {"place": number // 2, "created_at": AT, "bytes": number, "name": {"key_id": "k"}},
        )
        for tenant, number in files
    ]
    await store.commit(Batch("views", VERSION, PLACE, 0, Position(1), changes))


class ViewsSuite:
    async def ids(self, views: Views, **options: Any) -> list[str]:
        rows = await views.page(FILES, {"tenant": "a"}, limit=10, **options)
        return [row["id"] for row in rows]

    async def test_pages_are_ordered_and_equal_places_by_id(self, views: Views) -> None:
        up = [f"file-{n}" for n in range(1, 6)]
        assert await self.ids(views, descending=False) == up
        assert await self.ids(views) == up[::-1]

    async def test_a_cursor_begins_just_after_its_row(self, views: Views) -> None:
        assert await self.ids(views, after=Cursor(1, "file-3")) == ["file-2", "file-1"]
        after = Cursor(1, "file-2")
        assert await self.ids(views, after=after, descending=False) == [
            "file-3",
            "file-4",
            "file-5",
        ]

    async def test_limits_and_conditions(self, views: Views) -> None:
        two = await views.page(FILES, {"tenant": "a"}, limit=2)
        assert [row["id"] for row in two] == ["file-5", "file-4"]
        other = await views.one(FILES, {"tenant": "b", "id": "file-9"})
        assert other is not None
        assert (other["bytes"], other["name"], other["failure"]) == (9, {"key_id": "k"}, None)
        assert await views.one(FILES, {"tenant": "b", "id": "file-1"}) is None

    async def test_a_nul_matches_nothing(self, views: Views) -> None:
        assert await views.one(FILES, {"tenant": "a", "id": "file\0"}) is None
