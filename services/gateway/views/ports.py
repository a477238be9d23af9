"""The port that read models are read by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from services.gateway.views.table import R, Table


@dataclass(frozen=True)
class IntRange:
    """The integers [first, end)."""

    first: int
    end: int


class DaysKept(NamedTuple):
    """Days for which rows are kept."""

    steps: int  # metrics and log lines, after the end of their job
    history: int  # states and messages of a job, after its end
    deliveries: int  # deliveries of webhooks, after their end
    audit: int  # entries of the audit log


# column → the value it must have, a tuple of the values it may have, or a span of them
Where: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Cursor:
    """A page's start: the row after the one with this value of the order column and this id."""

    order: Any
    id: str


@dataclass(frozen=True)
class Buckets:
    """The values [first, end) of a column of integers, cut at the multiples of `width`."""

    column: str
    first: int
    end: int
    width: int


class Views(Protocol):
    """Reads of the read models. Raises ApiError 503 when they cannot be reached in time."""

    async def first(self, table: Table[R], where: Where) -> R | None:
        """The first row that matches, in the table's order."""
        rows = await self.page(table, where, limit=1, descending=False)
        return rows[0] if rows else None

    async def page(
        self,
        table: Table[R],
        where: Where,
        *,
        limit: int,
        after: Cursor | None = None,
        descending: bool = True,
    ) -> Sequence[R]:
        """Up to `limit` rows by (order column, id)."""

    async def sums(
        self,
        table: Table[R],
        where: Where,
        buckets: Buckets,
        *,
        by: Sequence[str],
        of: Sequence[str],
        limit: int,
        after: Sequence[str] = (),
    ) -> Sequence[Mapping[str, Any]]:
        """Sums of the columns `of` in each bucket, for each combination of the columns `by`.

        after: values of the columns `by`, of which only greater ones are summed
        Up to `limit` records of `by`, `of`, `rows` (how many there are) and `bucket`, the first
        value that the bucket may have.
        """


class ReadModels(Views, Protocol):
    """Reads of the read models, and whether they are complete."""

    async def behind(self) -> Mapping[str, str | None]:
        """Return the partitions of journals that rows were not made of to the end, each with why it
        has stopped; None: it is read.
        """
