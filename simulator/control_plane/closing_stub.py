"""Closing of months in a run: the effect of production over the rows in billing's store.

What is besides use on a bill is taken from the journal, where production has tables of it.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from schemas.account import InvoiceAdjusted, PeriodEnded
from schemas.answers import AnswersCounted, AnswerUse
from schemas.billing import BillingTerms, Statement
from schemas.streams import PARTITIONS
from schemas.topics import DATASET, MODEL, SESSION
from schemas.units import HOUR_MS
from services.billing.adapters.ledger import LEDGER, read_reached
from simulator.control_plane.bills import books_on_log
from simulator.control_plane.sim_context import SimContext
from simulator.engine.stores import Database
from tunery.billing.answers import AnswersOfMonth
from tunery.billing.invoice import BilledMonth, close_invoice, is_billable, make_invoices
from tunery.billing.lines import LedgerRow, select_usage
from tunery.billing.periods import BillShare, Cut, Period
from tunery.runtime.store.abstract import StoreUnavailable


class SimBooks:
    """Implements the port `Books`."""

    def __init__(self, context: SimContext, database: Database) -> None:
        self._context, self._database = context, database

    async def reached(self) -> Cut:
        """How far the ledger is. Raises StoreUnavailable."""
        if self._database.away:
            raise StoreUnavailable("the database is away")
        return await read_reached(self._database)

    async def stored(self) -> Mapping[tuple[str, int], int]:
        """Nothing is stored in a run, and so all of it is known."""
        memory = self._context.broker.memory
        return {
            (stream.name, number): (await memory.bounds(stream.journal.name, number))[1]
            for stream in (DATASET, MODEL, SESSION)
            for number in range(PARTITIONS)
        }

    async def statement(self, tenant: str, ended: PeriodEnded, share: BillShare) -> Statement:
        """The bills of a month. Raises PriceMissing."""
        rows = await self._database.rows(LEDGER, {"tenant": tenant})
        mine = [msgspec.convert(row, LedgerRow) for row in rows]
        books = books_on_log(self._context.decisions["account"])
        currency, cut = books[ended.price_version].currency, share.cut
        billed = BilledMonth(
            tenant=tenant,
            month=share.month,
            soft_gpu_ms=ended.soft_gpu_ms,
            currency=currency,
            terms=ended.terms or BillingTerms(),
            adjustments=tuple(
                event.adjustment
                for event in self._of(tenant, InvoiceAdjusted)
                if event.period == share.month.name
            ),
            answers=self._answers(tenant, share.month),
        )
        invoices = make_invoices(billed, select_usage(mine, share), books)
        own = {invoice.currency: invoice for invoice in invoices}.get(currency)
        return Statement(
            period=share.month.name,
            cut=() if cut is None else cut.offsets,
            currency=currency,
            soft_gpu_ms=ended.soft_gpu_ms,
            gpu_ms=0 if own is None else own.gpu_ms,
            amount_micro=0 if own is None else own.amount_micro,
            incarnations=() if cut is None else cut.incarnations,
            bills=tuple(close_invoice(entry) for entry in invoices if is_billable(entry)),
            terms=ended.terms,
        )

    def _of(self, tenant: str, kind: type[Any]) -> list[Any]:
        return [
            event
            for decision in self._context.decisions["account"]
            if decision.header.key == tenant
            for event in decision.events
            if isinstance(event, kind)
        ]

    def _answers(self, tenant: str, month: Period) -> tuple[AnswersOfMonth, ...]:
        uses: dict[str, list[AnswerUse]] = {}
        for decision in self._context.decisions["account"]:
            hour = decision.header.at // HOUR_MS
            if decision.header.key == tenant and month.first_hour <= hour < month.end_hour:
                for event in decision.events:
                    if isinstance(event, AnswersCounted):
                        uses.setdefault(event.price_version, []).extend(event.uses)
        return tuple(
            AnswersOfMonth(
                price_version=version,
                prompt_tokens=sum(use.prompt_tokens for use in of_book),
                cached_tokens=sum(use.cached_tokens for use in of_book),
                completion_tokens=sum(use.completion_tokens for use in of_book),
            )
            for version, of_book in sorted(uses.items())
        )
