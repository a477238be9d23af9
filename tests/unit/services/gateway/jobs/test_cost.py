"""Queries of a submission, counted by table."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from services.gateway.views.reading import StoreViews
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.test_routes import ready, submit

#: by table, of one more submission
QUERIES = {
    "keys": 1,
    "tenants": 2,
    "bases": 1,
    "files": 1,
    "benchmarks": 1,
    "policies": 1,
}


async def test_a_submission_reads_no_more_rows_than_it_needs(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant, file_id = await ready(api)
    assert (await submit(tenant, file_id)).status_code == 200
    reads = Counter[str]()

    def counting(read: Callable[..., Any]) -> Callable[..., Any]:
        async def counted(self: Any, table: Any, *arguments: Any, **options: Any) -> Any:
            reads[table.name] += 1
            return await read(self, table, *arguments, **options)

        return counted

    monkeypatch.setattr(StoreViews, "page", counting(StoreViews.page))
    monkeypatch.setattr(StoreViews, "sums", counting(StoreViews.sums))
    assert (await submit(tenant, file_id, seed=2)).status_code == 200
    assert {table: reads[table] for table in QUERIES} == QUERIES
    if not reads["placements"]:  # the queue, which is kept for a while, was not read again
        assert dict(reads) == {**QUERIES, "nodes": 1, "jobs": 2}
