"""Facts from the journal of `account` for charges: prices, ends of months, endpoints."""

from collections.abc import Mapping
from typing import Any

from schemas.account import (
    USAGE_RECORDED,
    EndpointChanged,
    EndpointCreated,
    EndpointDeleted,
    InvoiceClosed,
    PricesImported,
    TenantCreated,
)
from schemas.billing import PriceBook
from schemas.envelope import Header
from schemas.units import HOUR_MS
from tunery.billing.periods import CLOSE_AFTER_MS, Cut, Period, cut_of, period_of


class MonthOpen(Exception):
    """Billing is about to close a month, so it is unknown which month's bill gets a late row."""


class AccountFacts:
    """A fold of all partitions of `account`; to fold an event again changes nothing."""

    def __init__(self) -> None:
        self._books: dict[str, PriceBook] = {}
        self._closed: dict[str, dict[str, Cut]] = {}  # of each tenant, by month
        self._subscribed: dict[str, set[str]] = {}  # endpoints of each tenant that get its use

    @property
    def books(self) -> Mapping[str, PriceBook]:
        """The price books by version."""
        return self._books

    def fold(self, tenant: str, event: Any) -> None:
        """Take one event."""
        match event:
            case PricesImported():  # every partition has all of them
                self._books[event.book.version] = event.book
            case TenantCreated():
                self._closed.setdefault(tenant, {})
            case InvoiceClosed():
                closed = self._closed.setdefault(tenant, {})
                closed[event.statement.period] = cut_of(event.statement)
            case EndpointCreated(terms=terms):
                self._subscribe(tenant, terms.endpoint_id, terms.event_types)
            case EndpointChanged() if event.change.event_types is not None:
                self._subscribe(tenant, event.endpoint_id, event.change.event_types)
            case EndpointDeleted():
                self._subscribe(tenant, event.endpoint_id, ())
            case _:
                pass

    def _subscribe(self, tenant: str, endpoint_id: str, event_types: tuple[str, ...]) -> None:
        endpoints = self._subscribed.setdefault(tenant, set())
        if USAGE_RECORDED in event_types:
            endpoints.add(endpoint_id)
        else:
            endpoints.discard(endpoint_id)

    def wants_usage(self, tenant: str) -> bool:
        """Return whether an endpoint of the tenant subscribes to usage."""
        return bool(self._subscribed.get(tenant))

    def billed_month(self, header: Header, tenant: str, hour_utc: int) -> Period:
        """The month whose invoice a row of the pool's journal is on: its own, or a later one when
        that was closed before the row was written. Raises MonthOpen.

        The answer follows from the journals alone, so a file that is written again is the same.
        """
        month = period_of(hour_utc * HOUR_MS)
        closed = self._closed.get(tenant)
        while closed is not None and header.at >= month.end_ms + CLOSE_AFTER_MS:
            cut = closed.get(month.name)
            if cut is None:
                raise MonthOpen(f"{month.name} of {tenant} is being closed")
            if not cut.offsets or cut.is_before(
                header.partition, header.incarnation, header.offset
            ):
                break
            month = month.following()
        return month
