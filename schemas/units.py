"""Integer units. The unit ends every name; floats never carry money, time or tokens."""

from datetime import date, timedelta
from functools import lru_cache
from typing import Final, TypeAlias

Ms: TypeAlias = int  # milliseconds; as a moment: since the Unix epoch, UTC
GpuMs: TypeAlias = int  # GPU-milliseconds = slots × elapsed milliseconds
Tokens: TypeAlias = int
Micro: TypeAlias = int  # millionths of one currency unit
MicroGpuMs: TypeAlias = int  # GPU-milliseconds × price of a GPU-hour: a cost before its rounding

PPM = 1_000_000  # parts per million
PPB = 1_000_000_000  # parts per billion
MICRO = 1_000_000  # millionths in one unit of a currency
AMOUNT_MICRO_MAX = 10**15  # of an amount that somebody names: a thousand million units
HOUR_MS = 3_600_000
HOURS_PER_DAY = 24
DAY_MS = HOURS_PER_DAY * HOUR_MS
EPOCH: Final = date(1970, 1, 1)


def hour_of(at: Ms) -> int:
    """UTC hour number of a moment (hours since the epoch)."""
    return at // HOUR_MS


@lru_cache(maxsize=4_096)  # months of a few years: bills and budgets ask for the same hours
def month_of(hour_utc: int) -> str:
    """Calendar month ("2026-11", UTC) of an hour counted from the epoch."""
    day = EPOCH + timedelta(days=hour_utc // HOURS_PER_DAY)
    return f"{day.year:04}-{day.month:02}"


def divide_up(value: int, divisor: int) -> int:
    """Quotient of two integers, rounded up."""
    return -(-value // divisor)


def divide_half_even(value: int, divisor: int) -> int:
    """Quotient of two integers, `divisor` above zero, rounded half to even."""
    whole, rest = divmod(value, divisor)
    return whole + (2 * rest > divisor or (2 * rest == divisor and whole % 2 == 1))
