"""Queries of the ledger for one bill: its own month, and late rows."""

from collections.abc import Sequence
from typing import Any

from services.billing.adapters.usage import read_usage
from tunery.billing.periods import BillShare, Cut, period

NOVEMBER = period("2026-11")
TRAINED = ("train", "cpu", "h1", True)


class StubConnection:
    """Answers a row of a job, and keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[Any, ...]]] = []

    async def fetch(self, query: str, *args: Any) -> Sequence[Any]:
        self.asked.append((query, args))
        if len(self.asked) == 2:
            return [dict(enumerate(("ftjob-1", "standard", "v", *TRAINED, 7, 5)))]
        row: dict[str, Any] = {"kind": "usage", "job_id": "ftjob-1", "lane": "standard"}
        row |= {"role": "train", "device": "cpu", "accelerator": "h1", "spot": True}
        sums = {"hour_utc": NOVEMBER.first_hour, "used_gpu_ms": 5, "gpu_ms": 4}
        return [{**row, "price_version": "v", "cause": "", **sums}]


async def test_a_draft_asks_for_its_own_hours_alone() -> None:
    connection = StubConnection()
    usage = await read_usage(connection, "acme", BillShare(month=NOVEMBER), {}, {})
    assert [row.gpu_ms for row in usage.rows] == [4]
    assert list(usage.before.items()) == [((("ftjob-1", "standard", "v"), *TRAINED), 7)]
    assert usage.tokens_before == {("ftjob-1", "standard", "v"): 5}
    (query, args), (_, jobs) = connection.asked
    assert args == ("acme", NOVEMBER.first_hour, NOVEMBER.end_hour)
    assert "UNION" not in query
    assert jobs == ("acme", ["ftjob-1"], NOVEMBER.first_hour)


async def test_late_rows_begin_where_the_journal_was_cut() -> None:
    connection = StubConnection()
    late = Cut(offsets=(1, 2), incarnations=(3, 4))
    share = BillShare(month=NOVEMBER, late=late, cut=Cut(offsets=(5, 6)))
    await read_usage(connection, "acme", share, {}, {})
    query, args = connection.asked[0]
    assert args[3:] == ([5, 6], 1, 3, 5, 2, 4, 6)
    assert "journal_offset < ($4::bigint[])[journal_partition + 1]" in query
    same = "(incarnation = $6::bigint AND journal_offset >= $5::bigint)"
    assert f"({same} OR incarnation > $6::bigint)" in query
