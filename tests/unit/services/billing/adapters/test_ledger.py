"""What is read before a bill is made. Against PostgreSQL it is tested in tests/integration."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from services.billing.adapters import ledger
from services.billing.adapters.ledger import NoTenant, read_invoices, read_prices, read_rows
from tests.unit.tunery.billing.test_invoice import BOOKS
from tunery.billing.lines import PriceMissing
from tunery.billing.periods import period

NOVEMBER = period("2026-11")
PLAN = {"soft_gpu_ms": 1, "price_version": "2026-11"}


class Tables:
    """A connection to tables with these rows, by query; every other query finds none."""

    def __init__(self, rows: Mapping[str, Sequence[Any]]) -> None:
        self.rows = rows

    async def fetch(self, query: str, *_: Any) -> Sequence[Any]:
        return self.rows.get(query, ())


async def test_a_tenant_without_a_plan_is_named() -> None:
    with pytest.raises(NoTenant, match="acme"):
        await read_invoices(Tables({}), "acme", NOVEMBER)


async def test_a_price_book_that_is_not_on_the_log_is_named() -> None:
    with pytest.raises(PriceMissing, match="no price book '2026-11' on the log"):
        await read_invoices(Tables({ledger.TENANT: [PLAN]}), "acme", NOVEMBER)


async def test_a_month_without_use_has_one_empty_invoice_in_the_currency_of_the_plan() -> None:
    book = BOOKS["2026-11"]
    tables = Tables(
        {
            ledger.TENANT: [PLAN],
            ledger.PRICES: [(msgspec.json.encode(book),)],
            ledger.ANSWERS: [(0, 0, 0)],
        }
    )
    assert await read_prices(tables) == {"2026-11": book}
    assert await read_rows(tables, "acme", NOVEMBER) == ()
    (invoice,) = await read_invoices(tables, "acme", NOVEMBER)
    assert (invoice.currency, invoice.lines, invoice.total_micro) == (book.currency, (), 0)
