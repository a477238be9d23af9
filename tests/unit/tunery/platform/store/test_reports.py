"""Views for readers as SQL: their schema, quotes, names."""

import pytest

from tunery.platform.store.reports import reports_of, views_ddl


def test_queries_are_quoted_for_the_statement_that_runs_them() -> None:
    ddl = views_ddl("billing", {"ends": "SELECT 100 % n FROM t WHERE kind = 'x'"})
    assert """CREATE VIEW %I."ends" AS SELECT 100 %% n FROM t WHERE kind = ''x'''""" in ddl
    assert "to_regnamespace(target) IS NOT NULL" in ddl
    assert reports_of("billing") == "billing_reports"


def test_a_schema_name_that_needs_quotes_is_refused() -> None:
    with pytest.raises(ValueError, match="is not a name"):
        views_ddl("billing", {"x; DROP": "SELECT 1"})
