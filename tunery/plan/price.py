"""Price books, and what GPU time and trained tokens cost, in millionths of a currency unit."""

import msgspec

from schemas.account import Lane
from schemas.envelope import Part
from schemas.job import Price
from schemas.units import HOUR_MS, PPM, GpuMs, Micro, divide_up


class PriceBook(Part):
    """A versioned file: what a GPU-hour costs per lane, and a million trained tokens."""

    version: str
    currency: str
    gpu_hour_micro: dict[str, Micro]
    token_micro_per_million: Micro

    def price(self, lane: Lane) -> Price:
        """Raises KeyError when the book has no price for the lane."""
        return Price(
            version=self.version,
            currency=self.currency,
            gpu_hour_micro=self.gpu_hour_micro[lane],
            token_micro_per_million=self.token_micro_per_million,
        )


def load_prices(data: bytes) -> PriceBook:
    """Read a price book file. Raises msgspec.ValidationError, which names the field."""
    return msgspec.json.decode(data, type=PriceBook)


def price_micro(price: Price, gpu_ms: GpuMs, tokens: int) -> Micro:
    """Rounded up: an estimate never promises less than the invoice will say."""
    time = divide_up(gpu_ms * price.gpu_hour_micro, HOUR_MS)
    return time + divide_up(tokens * price.token_micro_per_million, PPM)


def line_micro(gpu_ms: GpuMs, gpu_hour_micro: Micro) -> Micro:
    """What one line of an invoice costs (credits: negative), rounded half to even."""
    whole, rest = divmod(gpu_ms * gpu_hour_micro, HOUR_MS)
    return whole + (2 * rest > HOUR_MS or (2 * rest == HOUR_MS and whole % 2 == 1))
