"""Tokens of sessions as charges that cost nothing: what was done in the time that is billed."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from msgspec.structs import asdict

from schemas.envelope import Header
from schemas.session import CommandAnswered
from schemas.units import hour_of
from services.exporter.domain.accounts import AccountFacts
from services.exporter.domain.focus import (
    KIND_COLUMNS,
    TOKENS,
    TWELFTH_DECIMAL,
    BillingContext,
    ExportedCharge,
    make_charge,
    time_of,
)
from tunery.billing.lines import WHERE_BOOKS_ARE, PriceMissing
from tunery.billing.periods import period_of
from tunery.billing.sessions import session_words

SKU = "session-tokens"


def charges_of_session(
    header: Header, event: CommandAnswered, accounts: AccountFacts, provider: str
) -> Iterator[ExportedCharge]:
    """Yield the charge of an answered command, if it has tokens. Raises PriceMissing.

    It is of the hour in which it was answered, so none is late.
    """
    tokens = asdict(event.tokens)
    if not any(tokens.values()) or not event.price_version:
        return
    book = accounts.books.get(event.price_version)
    if book is None:
        raise PriceMissing(f"no price book {event.price_version!r}; {WHERE_BOOKS_ARE}")
    context = BillingContext(
        tenant=header.tenant,
        month=period_of(header.at),
        currency=book.currency,
        provider=provider,
    )
    hour, quantity = hour_of(header.at), Decimal(sum(tokens.values()))
    values: dict[str, Any] = {
        "ChargeCategory": "Usage",
        "ChargeDescription": session_words(event.tokens),
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodStart": time_of(hour),
        "ChargePeriodEnd": time_of(hour + 1),
        "ConsumedQuantity": quantity,
        "ConsumedUnit": TOKENS,
        **dict.fromkeys(("ContractedUnitPrice", "ListUnitPrice"), Decimal()),
        "PricingQuantity": quantity,
        "PricingCategory": "Standard",
        "PricingUnit": TOKENS,
        "ResourceId": header.key,
        "ResourceType": "Fine-tuning job",
        "SkuId": SKU,
        "SkuMeter": "Session tokens",
        "SkuPriceId": f"{event.price_version}/{SKU}",
        **{KIND_COLUMNS[kind]: count for kind, count in tokens.items()},
    }
    yield make_charge(header, context, Decimal().quantize(TWELFTH_DECIMAL), values)
