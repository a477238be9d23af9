"""A table's DDL, writes and reads come from the fields of its row."""

from typing import Any, Literal

import msgspec
import pytest

from schemas.model import Share
from services.gateway.views.projections.journals import TABLES
from services.gateway.views.table import Table, TableIndex, TableRow


class PetRow(TableRow):
    tenant: str
    kind: Literal["cat", "dog"]
    weight: float
    fed: bool
    owner: Share | None
    age: int | None = None
    note: Any = None


PETS = Table(
    "pets",
    PetRow,
    key=("tenant", "id"),
    order="age",
    indexes=(TableIndex(("tenant", "age")), TableIndex(("kind",), where="age IS NOT NULL")),
)
KEY = {"tenant": "acme", "id": "p1"}
CAT = PetRow(tenant="acme", id="p1", kind="cat", weight=4.5, fed=True, owner=None)
RECORD = {**KEY, "kind": "cat", "weight": 4.5, "fed": True, "owner": None}


def test_ddl_has_a_type_for_each_field() -> None:
    assert PETS.columns == {
        "id": "text",
        "tenant": "text",
        "kind": "text",
        "weight": "double precision",
        "fed": "boolean",
        "owner": "jsonb",
        "age": "bigint",
        "note": "jsonb",
    }
    create, *indexes = PETS.ddl().splitlines()
    assert create.startswith("CREATE TABLE IF NOT EXISTS pets (tenant text, kind text, weight")
    assert create.endswith('id text COLLATE "C", PRIMARY KEY (tenant, id));')
    assert indexes == [
        "CREATE INDEX IF NOT EXISTS pets_tenant_age ON pets (tenant, age);",
        "CREATE INDEX IF NOT EXISTS pets_kind ON pets (kind) WHERE age IS NOT NULL;",
    ]


def test_insert_leaves_fields_with_a_default_to_later_events() -> None:
    upsert = PETS.insert(CAT)
    assert upsert.key == KEY
    assert upsert.values == {"kind": "cat", "weight": 4.5, "fed": True, "owner": None}
    owned = PETS.insert(
        msgspec.structs.replace(CAT, owner=Share(permission_id="a", project_id="b"), age=3)
    )
    assert owned.values["owner"] == {"permission_id": "a", "project_id": "b"}
    assert owned.values["age"] == 3


@pytest.mark.parametrize(
    ("key", "values"),
    [(KEY, {"colour": "red"}), ({"tenant": "acme"}, {"age": 3}), ({**KEY, "age": 3}, {})],
)
def test_update_takes_columns_of_the_table_only(
    key: dict[str, Any], values: dict[str, Any]
) -> None:
    assert PETS.update(KEY, age=3).values == {"age": 3}
    with pytest.raises(TypeError):
        PETS.update(key, **values)


def test_read_gives_a_row_once_every_required_column_is_set() -> None:
    assert PETS.read(RECORD) == CAT
    assert PETS.read({**RECORD, "age": 3}) == msgspec.structs.replace(CAT, age=3)
    assert PETS.read({**RECORD, "weight": None}) is None
    assert PETS.read({**KEY, "age": 3}) is None


def test_a_value_of_another_type_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError):
        PETS.read({**RECORD, "kind": "cow"})


def test_the_order_of_every_table_is_one_of_its_columns() -> None:
    for table in TABLES:
        assert {table.order, *table.key} <= set(table.columns)
        assert all(set(index.columns) <= set(table.columns) for index in table.indexes)
