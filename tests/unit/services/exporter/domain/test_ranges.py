"""Names of ranges and files."""

from services.exporter.domain.ranges import ExportRange, RangeFile, file_key, newest_key, range_key
from tunery.runtime.blobs.abstract import check_key
from tunery.runtime.journal.reader import Position


def test_a_file_is_named_by_tenant_month_and_offsets() -> None:
    written = ExportRange(first=Position(7), end=Position(12))
    key = file_key(RangeFile("acme", "csv", "2026-11", ".csv"), "pool", 3, written)
    assert key == "t/acme/exports/csv/2026-11/pool-3-0-000000000000007-000000000000012.csv"
    assert range_key("pool", 3, written.first) == "exports/pool/3/000000000000007.json"
    for name in (key, range_key("pool", 3, written.first), newest_key("pool", 3)):
        check_key(name)
