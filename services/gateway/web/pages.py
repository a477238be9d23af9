"""Lists: pages by the id of the last item, as the SDK asks for them."""

from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import Query

from services.gateway.views.ports import Cursor, Views, Where
from services.gateway.views.table import R, Table
from services.gateway.web.domain.errors import not_found

ID_CHARACTERS_MAX: Final = 256
After = Annotated[
    str | None, Query(max_length=ID_CHARACTERS_MAX, description="id of the last item you have")
]


async def page(
    views: Views,
    table: Table[R],
    where: Where,
    *,
    limit: int,
    after: str | None,
    descending: bool = True,
) -> tuple[Sequence[R], bool]:
    """Rows of a page, and whether there are more. Raises ApiError 404 for an unknown `after`."""
    cursor = None if after is None else await _cursor(views, table, where, after)
    rows = await views.page(table, where, limit=limit + 1, after=cursor, descending=descending)
    return rows[:limit], len(rows) > limit


async def _cursor(views: Views, table: Table[R], where: Where, after: str) -> Cursor:
    row = await views.first(table, {**where, "id": after})
    if row is None:
        raise not_found("item", after, "after")
    return Cursor(*table.position(row))
