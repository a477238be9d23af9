"""Views of billing's rows name tables and numbers that exist."""

from services.billing.app import LEDGER, STORAGE, TENANTS
from services.billing.reports import LEDGER_VIEWS, STORAGE_VIEWS, TENANTS_VIEWS
from tunery.billing.storage import FOREVER


def test_views_are_made_with_the_tables_that_they_are_of() -> None:
    for projection, views in (
        (LEDGER, LEDGER_VIEWS),
        (STORAGE, STORAGE_VIEWS),
        (TENANTS, TENANTS_VIEWS),
    ):
        assert projection.once_built == views
        assert sum(f"FROM {table}" in views for table in projection.tables) >= 1
    assert str(FOREVER) in STORAGE_VIEWS
