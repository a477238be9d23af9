"""Calendar months (UTC): what a bill is of, and which rows of the ledger are on it."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

from msgspec import Struct

from schemas.billing import Statement
from schemas.units import HOUR_MS, Ms

Term = TypeVar("Term")
CLOSE_AFTER_MS: Final[Ms] = 2 * HOUR_MS  # from a month's end: its last slices are written by then


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


def in_force(changes: Mapping[str, Term], month: str, otherwise: Term) -> Term:
    """The term at the month's end, of month → term from it on; `otherwise` before the first."""
    name = max((name for name in changes if name <= month), default=None)
    return otherwise if name is None else changes[name]


class Cut(Struct, frozen=True, kw_only=True):
    """Ends of the pool's journal when a month was closed, by partition."""

    offsets: tuple[int, ...]  # the first offset that is not on the month's bill
    # incarnations of the journal then, of which an import begins the next; empty: not recorded, so
    # any
    incarnations: tuple[int, ...] = ()

    def is_before(self, partition: int, incarnation: int, offset: int) -> bool:
        """True if the record was in the journal when it was cut."""
        then = self.incarnations[partition] if self.incarnations else incarnation
        return (incarnation, offset) < (then, self.offsets[partition])


class BillShare(Struct, frozen=True, kw_only=True):
    """The rows of the ledger that are on one bill."""

    month: Period  # its own rows are on the bill, unless they were written after `cut`
    # rows of earlier months are on the bill too if they were written after this; None: none is, as
    # the month before is not closed
    late: Cut | None = None
    # rows that were written after this are on a later bill; None: the month is not closed
    cut: Cut | None = None

    def has(self, hour: int, partition: int, incarnation: int, offset: int) -> bool:
        """True if the row of this hour and journal position is on the bill."""
        if hour >= self.month.end_hour:
            return False
        if self.cut is not None and not self.cut.is_before(partition, incarnation, offset):
            return False
        return hour >= self.month.first_hour or not self.is_earlier(
            hour, partition, incarnation, offset
        )

    def is_earlier(self, hour: int, partition: int, incarnation: int, offset: int) -> bool:
        """True if the row is on the bill of an earlier month."""
        if hour >= self.month.first_hour:
            return False
        return self.late is None or self.late.is_before(partition, incarnation, offset)


def cut_of(statement: Statement) -> Cut:
    """Return the position in each journal partition at which a closed month ends."""
    return Cut(offsets=statement.cut, incarnations=statement.incarnations)


def later_cut(before: Cut, now: Cut) -> Cut:
    """The later of two cuts in each partition: a cut never goes back."""
    incarnations = before.incarnations or (0,) * len(before.offsets)
    positions = [
        max(pair)
        for pair in zip(
            zip(incarnations, before.offsets, strict=True),
            zip(now.incarnations, now.offsets, strict=True),
            strict=True,
        )
    ]
    return Cut(
        offsets=tuple(offset for _, offset in positions),
        incarnations=tuple(incarnation for incarnation, _ in positions),
    )


def share_of(month: Period, closed: Sequence[Statement]) -> BillShare:
    """Every row is on exactly one bill, however late it comes, and a closed one never changes.

    `closed`: all closed months, oldest first. A row is on the bill of its own month unless that was
    closed before it came; then on the next one that was not.
    """
    names = [statement.period for statement in closed]
    if month.name in names:
        at = names.index(month.name)
        cut = cut_of(closed[at])
        first = Cut(offsets=(0,) * len(cut.offsets))
        return BillShare(month=month, late=cut_of(closed[at - 1]) if at else first, cut=cut)
    if closed and month == period(names[-1]).following():
        return BillShare(month=month, late=cut_of(closed[-1]))
    return BillShare(month=month)
