"""Views that people may read in PostgreSQL, besides the API. Pure.

A service makes them in its own schema for them, where a role that may do nothing else can read
(`roles`). Rows of tables stay with the service. Where an operator has not made that schema there
are no views.
"""

from collections.abc import Mapping
from typing import Final

from tunery.platform.store.rows import name

SUFFIX: Final = "_reports"
#: Made anew at every start, because columns of a view that exists cannot be changed or removed.
VIEW: Final = """\
        EXECUTE format('DROP VIEW IF EXISTS %I.{view}', target);
        EXECUTE format('CREATE VIEW %I.{view} AS {query}', target);
"""
VIEWS: Final = """
DO $views$ DECLARE target text := '{reports}'; BEGIN
    IF to_regnamespace(target) IS NOT NULL THEN
{views}    END IF;
END $views$;
"""


def reports_of(service: str) -> str:
    """The schema with the views of a service."""
    return f"{service}{SUFFIX}"


def views_ddl(service: str, queries: Mapping[str, str]) -> str:
    """Statements that make these views, by name, of tables that a service has in its search path.

    Raises ValueError.
    """
    views = "".join(
        VIEW.format(view=name(view), query=query.replace("'", "''").replace("%", "%%"))
        for view, query in queries.items()
    )
    return VIEWS.format(reports=reports_of(service), views=views)
