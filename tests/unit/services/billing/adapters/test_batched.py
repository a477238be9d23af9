"""A query of many tenants is sent once. That the rows are equal is tested in tests/integration."""

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncpg
import msgspec
import pytest

from services.billing.adapters.batched import BatchedConnection

ADDED = "SELECT bytes FROM storage WHERE tenant = $1 AND until > $2 AND n = ANY($3)"


class StubConnection:
    """Answers each request of a query with its own first argument."""

    def __init__(self) -> None:
        self.queries: list[str] = []

    async def fetch(self, query: str, *args: Any) -> Sequence[Any]:
        self.queries.append(query)
        if "LATERAL" not in query:
            if args and args[0] == "broken":
                raise asyncpg.NumericValueOutOfRangeError("too much")
            return [{"bytes": argument} for argument in args[:1]]
        requests = msgspec.json.decode(args[0])
        if any(request["a1"] == "broken" for request in requests):
            raise asyncpg.NumericValueOutOfRangeError("too much")
        return [{"bytes": r["a1"], "request_number": r["number"]} for r in requests]


async def test_review2_e3_tenants_that_are_read_at_one_moment_share_a_query() -> None:
    stub = StubConnection()
    connection = BatchedConnection(stub)
    names = [f"t{number}" for number in range(100)]
    results = await asyncio.gather(*(connection.fetch(ADDED, name, 7, [1, 2]) for name in names))
    assert [[row["bytes"] for row in rows] for rows in results] == [[name] for name in names]
    (query,) = stub.queries
    assert "tenant = requests.a1 AND until > requests.a2 AND n = ANY(requests.a3)" in query
    assert "(number integer, a1 text, a2 bigint, a3 bigint[])" in query


async def test_review2_e3_one_tenant_whose_sums_are_too_large_fails_alone() -> None:
    connection = BatchedConnection(StubConnection())
    results = await asyncio.gather(
        *(connection.fetch(ADDED, name, 7, None) for name in ("a", "broken", "b")),
        return_exceptions=True,
    )
    assert results[0] == [{"bytes": "a"}]
    assert results[2] == [{"bytes": "b"}]
    assert isinstance(results[1], asyncpg.DataError)


async def test_a_query_alone_and_one_without_arguments_are_sent_as_they_are() -> None:
    stub = StubConnection()
    connection = BatchedConnection(stub)
    assert await connection.fetch(ADDED, "a", 7, ["x"]) == [{"bytes": "a"}]
    await asyncio.gather(*(connection.fetch("SELECT book FROM prices") for _ in range(9)))
    assert stub.queries == [ADDED, "SELECT book FROM prices"]
    with pytest.raises(asyncpg.DataError):
        await connection.fetch(ADDED, "broken", 7, [])
