"""Metrics of billing: gauges of its states. No label names a tenant."""

from collections.abc import Iterator
from typing import Final

from services.billing.domain.state import Accounts
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.telemetry.catalogue import computed
from tunery.runtime.telemetry.figures import StateValue

DELIVERIES_OPEN: Final = computed(
    "tunery_deliveries_open", "Webhooks and e-mails that are not delivered yet"
)
CLOSINGS: Final = computed(
    "tunery_months_closing", "Tenants whose month is over and whose invoice is being made"
)


def account_figures(host: AggregateHost[Accounts]) -> Iterator[StateValue]:
    """Yield the metrics of the `account` partitions that this process owns."""
    for state in host.settled_states():
        yield from figures_of_accounts(state)


def figures_of_accounts(accounts: Accounts) -> Iterator[StateValue]:
    """Deliveries and closings of one partition."""
    tenants = tuple(accounts.tenants.values())
    yield StateValue(DELIVERIES_OPEN, (), sum(len(tenant.deliveries) for tenant in tenants))
    yield StateValue(CLOSINGS, (), sum(tenant.closes_at is None for tenant in tenants))
