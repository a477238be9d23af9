"""Views of the gateway's rows hold no sealed text, and name columns that exist."""

from services.gateway.views.reports import VIEWS
from services.gateway.views.tables.accounts import BUDGETS
from services.gateway.views.tables.jobs import JOBS


def test_views_show_no_text_of_a_tenant() -> None:
    sealed = {"submitted_by"}
    assert sealed <= JOBS.columns.keys()
    assert not any(column in VIEWS for column in sealed)
    assert "id AS budget_id" in VIEWS
    assert BUDGETS.columns["use"] == "jsonb"
