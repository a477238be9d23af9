"""Metrics of billing's states."""

from immutables import Map

from services.billing.domain.state import Accounts, AccountState
from services.billing.figures import figures_of_accounts
from simulator.control_plane.samples import limits

TERMS = limits().terms


def test_open_deliveries_and_closings_of_all_tenants_are_added_up() -> None:
    busy = AccountState(terms=TERMS, period="2026-11", closes_at=1, deliveries=Map(a="x", b="x"))
    closing = AccountState(terms=TERMS, period="2026-11", closes_at=None, deliveries=Map(c="y"))
    shown = figures_of_accounts(Accounts(tenants=Map(acme=busy, zeta=closing)))
    values = {figure.metric.name: figure.value for figure in shown}
    assert values == {"tunery_deliveries_open": 3, "tunery_months_closing": 1}
