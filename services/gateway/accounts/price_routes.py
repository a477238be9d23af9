"""`/v1/prices`, for operators: price books, imported into the log."""

from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final, Literal

from fastapi import Request
from msgspec import to_builtins

from schemas.account import PRICES_PARTITION, ImportPrices
from schemas.billing import PriceBook
from schemas.streams import GLOBAL
from schemas.topics import ACCOUNT
from services.gateway.accounts.domain.bodies import PriceBookRequest
from services.gateway.views.tables.accounts import PRICES, PriceRow
from services.gateway.web.deps import Admin, Deps, WithDeps
from services.gateway.web.domain.errors import not_found
from services.gateway.web.domain.responses import ListItem, Page, listing
from services.gateway.web.routing import new_router
from tunery.billing.books import newest_book

BOOKS_MAX: Final = 1_000
router = new_router("prices", "/v1/prices")


class PriceBookResponse(ListItem):
    """A price book as it was imported; its id is its version.

    `in_force`: its first day has come. `is_default`: new tenants get it.
    """

    id: str
    object: Literal["price_book"] = "price_book"
    in_force: bool
    is_default: bool
    book: dict[str, Any]


@router.post("", status_code=201)
async def import_prices(
    body: PriceBookRequest, request: Request, deps: WithDeps, admin: Admin
) -> PriceBookResponse:
    """Import a price book: the body is its file. Repeating the request changes nothing."""
    book = body.book()
    await deps.commands.decide(
        ACCOUNT,
        GLOBAL,
        ImportPrices(book=book, sha256=sha256(await request.body()).hexdigest()),
        partition=PRICES_PARTITION,
        actor=deps.seal.seal(admin.tenant, admin.key_id, "actor"),
    )
    return await _response(deps, book.version)


@router.get("")
async def list_prices(deps: WithDeps, admin: Admin) -> Page[PriceBookResponse]:
    """List all price books, in the order of their first days. There are no pages."""
    rows = await _rows(deps)
    return listing(
        Page[PriceBookResponse], [_book_response(deps, row, rows) for row in rows], False
    )


@router.get("/{version}")
async def retrieve_prices(version: str, deps: WithDeps, admin: Admin) -> PriceBookResponse:
    return await _response(deps, version)


async def _rows(deps: Deps) -> list[PriceRow]:
    return list(await deps.views.page(PRICES, {}, limit=BOOKS_MAX, descending=False))


async def _response(deps: Deps, version: str) -> PriceBookResponse:
    rows = await _rows(deps)
    row = next((row for row in rows if row.id == version), None)
    if row is None:
        raise not_found("price book", version, "version")
    return _book_response(deps, row, rows)


def _book_response(deps: Deps, row: PriceRow, rows: list[PriceRow]) -> PriceBookResponse:
    today = datetime.fromtimestamp(deps.clock.now_ms() // 1_000, UTC).date().isoformat()
    newest = newest_book((each.book for each in rows), today)
    return PriceBookResponse(
        id=row.id,
        in_force=row.effective_from <= today,
        is_default=row.book == newest,
        book=_shown(row.book),
    )


def _shown(book: PriceBook) -> dict[str, Any]:
    shown: dict[str, Any] = to_builtins(book)
    return shown
