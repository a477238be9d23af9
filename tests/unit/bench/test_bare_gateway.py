"""The bare handler asks the tables of the gateway for what they have, or it compares nothing."""

import re
from typing import Any

import pytest

from bench.bare_gateway import JOB, KEY
from schemas.access import schema_of
from services.gateway.views.table import Table
from services.gateway.views.tables.accounts import KEYS
from services.gateway.views.tables.jobs import JOBS


@pytest.mark.parametrize(("query", "table"), [(KEY, KEYS), (JOB, JOBS)])
def test_a_query_names_columns_that_its_table_has(query: str, table: Table[Any]) -> None:
    columns = set(re.findall(r"(\w+) (?:= \$|ASC)", query))
    assert columns >= {table.order, "id"}
    assert columns <= set(table.row.__struct_fields__)
    assert f"FROM {schema_of('gateway')}.{table.name} " in query
