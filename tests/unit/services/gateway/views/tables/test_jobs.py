"""Rows of jobs and nodes: what follows from several columns."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas.reasons import cordoning
from services.gateway.views.tables.jobs import NodeRow


@pytest.mark.parametrize(
    ("columns", "status"),
    [
        ({}, "up"),
        ({"joining": True}, "joining"),
        ({"joining": True, "cordon": cordoning("operator")}, "cordoned"),
        ({"leaving": True, "cordon": cordoning("operator")}, "leaving"),
        ({"ends_at": 1, "cordon": cordoning("operator"), "leaving": True}, "noticed"),
        ({"ends_at": 1, "state": "lost"}, "lost"),
        ({"leaving": True, "state": "lost"}, "lost"),
        ({"leaving": True, "state": "retired"}, "retired"),
    ],
)
def test_the_status_of_a_node_is_what_keeps_jobs_away_most(
    columns: dict[str, Any], status: str
) -> None:
    row = NodeRow(
        id="a",
        pool="default",
        device="cpu",
        slots=1,
        memory_bytes=1,
        accelerator="",
        spot=False,
        reserved=False,
        taints=(),
        state="alive",
    )
    assert replace(row, **columns).status == status
