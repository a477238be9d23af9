"""Integer units. The unit ends every name; floats never carry money, time or tokens."""

from typing import TypeAlias

Ms: TypeAlias = int  # milliseconds; as a moment: since the Unix epoch, UTC
GpuMs: TypeAlias = int  # GPU-milliseconds = slots × elapsed milliseconds
Tokens: TypeAlias = int
Micro: TypeAlias = int  # millionths of one currency unit

PPM = 1_000_000  # parts per million
PPB = 1_000_000_000  # parts per billion
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def hour_of(at: Ms) -> int:
    """UTC hour number of a moment (hours since the epoch)."""
    return at // HOUR_MS


def divide_up(value: int, divisor: int) -> int:
    """Quotient of two integers, rounded up."""
    return -(-value // divisor)


def divide_half_even(value: int, divisor: int) -> int:
    """Quotient of two integers, `divisor` above zero, rounded half to even."""
    whole, rest = divmod(value, divisor)
    return whole + (2 * rest > divisor or (2 * rest == divisor and whole % 2 == 1))
