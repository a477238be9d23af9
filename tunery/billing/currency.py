"""Minor units of currencies (ISO 4217), the one rounding to what can be paid, amounts in words."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from schemas.units import PPM, Micro, divide_half_even

MICRO_DIGITS: Final = 6
MINOR_DIGITS: Final = 2
#: Currencies whose minor unit has another number of digits: ISO 4217, list one of 2024-06-25.
OTHER_DIGITS: Final[Mapping[int, frozenset[str]]] = {
    0: frozenset(
        (
            *("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG"),
            *("RWF", "UGX", "UYI", "VND", "VUV", "XAF", "XOF", "XPF"),
        )
    ),
    3: frozenset(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND")),
    4: frozenset(("CLF", "UYW")),
}


def is_currency(code: str) -> bool:
    """True if a code has the form of an ISO 4217 currency code, such as EUR."""
    return len(code) == 3 and code.isascii() and code.isalpha() and code.isupper()


def minor_unit_micro(currency: str) -> Micro:
    """The smallest amount that can be paid: 10,000 millionths of a euro."""
    others = (digits for digits, codes in OTHER_DIGITS.items() if currency in codes)
    digits: int = next(others, MINOR_DIGITS)
    return int(10 ** (MICRO_DIGITS - digits))


def round_to_minor(micro: Micro, currency: str) -> Micro:
    """The amount in whole minor units, rounded half to even."""
    return divide_half_even(micro, minor_unit_micro(currency)) * minor_unit_micro(currency)


def in_units(micro: Micro) -> str:
    """Millionths as units of the currency: `2.40`, with six places only where they are needed."""
    return f"{Decimal(micro) / PPM:.6f}".removesuffix("0000")


def percent(ppm: int) -> str:
    """A rate in millionths as people write it: `12.5 %`."""
    return f"{(Decimal(ppm) * 100 / PPM).normalize():f} %"
