"""Files: what they hold when they are read again."""

import csv
import io
from decimal import Decimal
from typing import Any

from msgspec.structs import replace
from pyarrow import parquet

from services.exporter.adapters.files import focus_csv, focus_parquet, plain_csv
from services.exporter.domain.focus import COLUMNS
from tests.unit.services.exporter.domain.test_focus import charge
from tests.unit.services.exporter.journals import credited, lease, sliced

CHARGES = [charge(sliced(lease(1), 100)), charge(credited(lease(1), 1))]


def read(body: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(body.decode())))


def test_parquet_has_decimals_and_utc_times() -> None:
    table: Any = parquet.read_table(io.BytesIO(focus_parquet(CHARGES)))
    assert table.column_names == list(COLUMNS)
    assert str(table.schema.field("BilledCost").type) == "decimal128(38, 12)"
    assert str(table.schema.field("ChargePeriodStart").type) == "timestamp[ms, tz=UTC]"
    assert table["BilledCost"].to_pylist() == [row.columns["BilledCost"] for row in CHARGES]


def test_both_focus_files_have_the_same_rows() -> None:
    rows = read(focus_csv(CHARGES))
    table: Any = parquet.read_table(io.BytesIO(focus_parquet(CHARGES)))
    assert [Decimal(row["BilledCost"]) for row in rows] == table["BilledCost"].to_pylist()
    assert rows[0]["ChargePeriodStart"] == "2026-11-01T00:00:00Z"
    assert rows[0]["ChargeClass"] == ""


def test_plain_csv_is_no_formula_and_keeps_numbers() -> None:
    odd = charge(sliced(replace(lease(1), job_id="=HYPERLINK(1)"), 5))
    row, credit = read(plain_csv([odd, CHARGES[1]]))
    assert row["job_id"] == "'=HYPERLINK(1)"
    assert (row["gpu_ms"], credit["gpu_ms"]) == ("5", "-1")
    assert credit["amount"].startswith("-0.0000006")
