"""Charges for tokens of inference in a month, if the price book has prices of them.

Tokens belong to the month in which an engine's count came to the log, so none is late. Their price
is that of the tenant's book at that moment, as budgets and caps of keys count it: a plan that comes
later changes nothing. Tokens of a question that were in memory from an earlier one have a price of
their own. Servers say at an answer's end how many these are: where a month ends before that, the
next one takes them off what was read.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict, replace

from schemas.answers import AnswerCost, AnswerUse
from schemas.billing import AnswerCharge, AnswerPrices, PriceBook
from schemas.units import AMOUNT_MICRO_MAX, PPM, Micro, Tokens, divide_half_even
from tunery.billing.currency import in_units

READ: Final = "tokens read"
REPEATED: Final = "tokens read again from memory"
WRITTEN: Final = "tokens written"


class AnswersOfMonth(Struct, frozen=True, kw_only=True):
    """Tokens of model answers in a month so far under one price book."""

    price_version: str = ""  # the tenant's price book when they were counted; empty: not priced
    prompt_tokens: Tokens = 0  # tokens read, of which `cached_tokens` came from the prompt cache
    cached_tokens: Tokens = 0
    completion_tokens: Tokens = 0  # tokens generated


class AnswerPart(NamedTuple):
    """Tokens of one price."""

    name: str
    tokens: Tokens
    micro_per_million: Micro
    amount_micro: Micro  # what they cost, rounded once


def answer_charges(
    uses: Iterable[AnswersOfMonth], books: Mapping[str, PriceBook]
) -> tuple[AnswerCharge, ...]:
    """Return the month's charges for answers, one for each book that prices them."""
    charges = (answer_charge(use, books) for use in uses)
    return tuple(charge for charge in charges if charge is not None)


def answer_charge(use: AnswersOfMonth, books: Mapping[str, PriceBook]) -> AnswerCharge | None:
    """Return the charge for answers under one book; None: not priced, or no tokens."""
    book = books.get(use.price_version)
    counts = (use.prompt_tokens, use.cached_tokens, use.completion_tokens)
    if book is None or book.answers is None or not any(counts):
        return None
    charge = AnswerCharge(
        price_version=book.version,
        prices=book.answers,
        prompt_tokens=use.prompt_tokens,
        cached_tokens=use.cached_tokens,
        completion_tokens=use.completion_tokens,
        amount_micro=0,
    )
    return replace(charge, amount_micro=sum(part.amount_micro for part in answer_parts(charge)))


def answer_parts(charge: AnswerCharge) -> tuple[AnswerPart, ...]:
    """The charge by price; parts without tokens are left out. They add up to it."""
    prices = charge.prices
    parts = (
        (READ, charge.prompt_tokens - charge.cached_tokens, prices.prompt_micro_per_million),
        (REPEATED, charge.cached_tokens, prices.cached_micro_per_million),
        (WRITTEN, charge.completion_tokens, prices.completion_micro_per_million),
    )
    return tuple(
        AnswerPart(name, tokens, price, divide_half_even(tokens * price, PPM))
        for name, tokens, price in parts
        if tokens
    )


def answer_costs(uses: Sequence[AnswerUse], book: PriceBook | None) -> tuple[AnswerCost, ...]:
    """Return the exact cost of counted answers by API key; () if the book does not price them.

    Each key's sum is limited to ±AMOUNT_MICRO_MAX, whatever counts an engine reports.
    """
    if book is None or book.answers is None:
        return ()
    exact: dict[str, int] = {}
    for use in uses:
        read = (use.prompt_tokens - use.cached_tokens) * book.answers.prompt_micro_per_million
        repeated = use.cached_tokens * book.answers.cached_micro_per_million
        written = use.completion_tokens * book.answers.completion_micro_per_million
        exact[use.key_id] = exact.get(use.key_id, 0) + read + repeated + written
    most = AMOUNT_MICRO_MAX * PPM
    bounded = {key_id: divmod(min(max(-most, cost), most), PPM) for key_id, cost in exact.items()}
    return tuple(
        AnswerCost(key_id=key_id, currency=book.currency, micro=micro, millionths=millionths)
        for key_id, (micro, millionths) in bounded.items()
        if micro or millionths
    )


def answer_words(part: AnswerPart) -> str:
    """`answers, 12,345 tokens read at 0.20 a million`."""
    return f"answers, {part.tokens:,} {part.name} at {in_units(part.micro_per_million)} a million"


def prices_of(prices: AnswerPrices | None) -> Iterable[tuple[str, Micro]]:
    """Each price with the name of its field."""
    return () if prices is None else asdict(prices).items()
