"""Calendar months (UTC): what a bill is of, and which rows of the ledger are on it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeAlias

from msgspec import Struct

from schemas.account import Statement
from schemas.units import HOUR_MS, Ms

Cut: TypeAlias = Sequence[int]  # by partition of the pool's journal


class Period(Struct, frozen=True, kw_only=True):
    """A calendar month (UTC) as hours since the epoch: [first_hour, end_hour)."""

    name: str
    first_hour: int
    end_hour: int

    @property
    def end_ms(self) -> Ms:
        return self.end_hour * HOUR_MS

    def following(self) -> "Period":
        return period_of(self.end_ms)


def period(name: str) -> Period:
    """`2026-11` → its hours. Raises ValueError with what is expected."""
    try:
        first = datetime.strptime(name, "%Y-%m").replace(tzinfo=UTC)
    except ValueError:
        raise ValueError(f"{name!r} is not a month; write it like 2026-11") from None
    return _month(first)


def period_of(at: Ms) -> Period:
    return _month(datetime.fromtimestamp(at // 1000, UTC))


def _month(day: datetime) -> Period:
    first = datetime(day.year, day.month, 1, tzinfo=UTC)
    after = datetime(day.year + day.month // 12, day.month % 12 + 1, 1, tzinfo=UTC)
    return Period(name=f"{first:%Y-%m}", first_hour=_hour(first), end_hour=_hour(after))


def _hour(moment: datetime) -> int:
    return int(moment.timestamp()) * 1000 // HOUR_MS


class BillShare(Struct, frozen=True, kw_only=True):
    """The rows of the ledger that are on one bill.

    `late`: rows of earlier months are, from these offsets on. `cut`: none is from these on.
    """

    month: Period
    late: Cut | None = None
    cut: Cut | None = None

    def has(self, hour: int, partition: int, offset: int) -> bool:
        if hour >= self.month.end_hour or (self.cut is not None and offset >= self.cut[partition]):
            return False
        if hour >= self.month.first_hour:
            return True
        return self.late is not None and offset >= self.late[partition]


def share_of(month: Period, closed: Sequence[Statement]) -> BillShare:
    """Every row is on exactly one bill, however late it comes, and a closed one never changes.

    `closed`: all closed months, oldest first. A row is on the bill of its own month unless that was
    closed before it came; then on the next one that was not.
    """
    names = [statement.period for statement in closed]
    if month.name in names:
        at = names.index(month.name)
        cut = closed[at].cut
        return BillShare(month=month, late=closed[at - 1].cut if at else (0,) * len(cut), cut=cut)
    if closed and month == period(names[-1]).following():
        return BillShare(month=month, late=closed[-1].cut)
    return BillShare(month=month)
