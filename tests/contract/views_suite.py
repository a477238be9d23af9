"""The contract of `Views`. Subclasses define a fixture `views`, filled with FILES."""

from typing import Any, Final

from schemas.access import VIEWS_VERSION
from schemas.sealed import Sealed
from schemas.units import Ms
from services.gateway.views.ports import Buckets, Cursor, IntRange, Views
from services.gateway.views.projections.journals import DDL, TABLES
from services.gateway.views.tables.files import FILES, FileRow
from tunery.runtime.journal.reader import Position
from tunery.runtime.store.abstract import RowBatch, Store, Tables

AT: Final[Ms] = 1_000
STREAM_PARTITION: Final = ("dataset", 0)
NAME: Final = Sealed(key_id="k", nonce=b"n", ciphertext=b"c")


async def fill(store: Store) -> None:
    """Five files of one tenant, one of another; and a part of a row that is not there yet."""
    names = tuple(table.name for table in TABLES)
    await store.ensure(Tables("views", VIEWS_VERSION, (STREAM_PARTITION,), DDL, names))
    files = [("a", n) for n in range(1, 6)] + [("b", 9)]
    changes = [
        FILES.insert(
            FileRow(
                tenant=tenant,
                id=f"file-{number}",
                sequence=number // 2,
                created_at=AT,
                purpose="fine-tune",
                name=NAME,
                bytes=number,
                sha256="ab" * 32,
                blob="b",
                status="uploaded",
                expires_at=None,
                dataset=None,
                dataset_name=None,
                version=None,
            )
        )
        for tenant, number in files
    ]
    unborn = FILES.update({"tenant": "a", "id": "file-7"}, failure="of another journal, ahead")
    await store.commit(
        RowBatch("views", VIEWS_VERSION, STREAM_PARTITION, 0, Position(1), [*changes, unborn])
    )


class ViewsSuite:
    async def ids(self, views: Views, **options: Any) -> list[str]:
        rows = await views.page(FILES, {"tenant": "a"}, limit=10, **options)
        return [row.id for row in rows]

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
        assert [row.id for row in two] == ["file-5", "file-4"]
        other = await views.first(FILES, {"tenant": "b", "id": "file-9"})
        assert other is not None
        assert (other.bytes, other.name, other.failure) == (9, NAME, None)
        assert await views.first(FILES, {"tenant": "b", "id": "file-1"}) is None

    async def test_a_row_without_its_required_columns_is_not_read(self, views: Views) -> None:
        assert await views.first(FILES, {"tenant": "a", "id": "file-7"}) is None

    async def test_sums_are_per_bucket_and_group(self, views: Views) -> None:
        buckets = Buckets("sequence", 0, 3, 2)  # file-1 … file-5 have 0, 1, 1, 2, 2
        sums = await views.sums(
            FILES, {"tenant": "a"}, buckets, by=("purpose",), of=("bytes", "sequence"), limit=9
        )
        assert [dict(record) for record in sums] == [
            {"bucket": 0, "purpose": "fine-tune", "rows": 3, "bytes": 6, "sequence": 2},
            {"bucket": 2, "purpose": "fine-tune", "rows": 2, "bytes": 9, "sequence": 4},
        ]
        some = {"tenant": "a", "id": ("file-2", "file-9", "file-7")}
        (record,) = await views.sums(FILES, some, buckets, by=(), of=("bytes",), limit=1)
        assert dict(record) == {"bucket": 0, "rows": 1, "bytes": 2}
        (record,) = await views.sums(FILES, some, buckets, by=(), of=(), limit=1)
        assert dict(record) == {"bucket": 0, "rows": 1}
        expiring = Buckets("expires_at", 0, 9, 9)
        assert not await views.sums(FILES, {"tenant": "a"}, expiring, by=(), of=(), limit=1)

    async def test_sums_after_a_group_go_on_with_the_next_one(self, views: Views) -> None:
        async def ids(after: tuple[str, ...]) -> list[str]:
            buckets, by = Buckets("sequence", 0, 3, 3), ("purpose", "id")
            sums = await views.sums(
                FILES, {"tenant": "a"}, buckets, by=by, of=(), limit=2, after=after
            )
            return [record["id"] for record in sums]

        assert await ids(()) == ["file-1", "file-2"]
        assert await ids(("fine-tune", "file-2")) == ["file-3", "file-4"]
        assert await ids(("fine-tune", "file-4")) == ["file-5"]

    async def test_a_condition_may_allow_several_values(self, views: Views) -> None:
        rows = await views.page(FILES, {"tenant": "a", "id": ("file-4", "file-2", "x")}, limit=9)
        assert [row.id for row in rows] == ["file-4", "file-2"]
        rows = await views.page(FILES, {"tenant": "a", "bytes": IntRange(2, 4)}, limit=9)
        assert [row.id for row in rows] == ["file-3", "file-2"]

    async def test_a_nul_matches_nothing(self, views: Views) -> None:
        assert await views.first(FILES, {"tenant": "a", "id": "file\0"}) is None
