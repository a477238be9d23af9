"""Files: what they hold when they are read again."""

import csv
import io
from decimal import Decimal
from typing import Any

from msgspec.structs import replace
from pyarrow import parquet

from services.exporter.adapters.files import FOCUS_1_2, FOCUS_1_4, FORMATS, PLAIN_CSV
from services.exporter.domain.focus import COLUMNS
from tests.unit.services.exporter.domain.test_focus import charge
from tests.unit.services.exporter.journals import credited, lease, sliced

PARQUET, CSV = FOCUS_1_2
CHARGES = [charge(sliced(lease(1), 100)), charge(credited(lease(1), 1))]


def read(body: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(body.decode())))


def test_parquet_has_decimals_and_utc_times() -> None:
    table: Any = parquet.read_table(io.BytesIO(PARQUET.encode(CHARGES)))
    assert table.column_names == list(COLUMNS)
    assert str(table.schema.field("BilledCost").type) == "decimal128(38, 12)"
    assert str(table.schema.field("ChargePeriodStart").type) == "timestamp[ms, tz=UTC]"
    assert table["BilledCost"].to_pylist() == [row.columns["BilledCost"] for row in CHARGES]


def test_both_focus_files_have_the_same_rows() -> None:
    rows = read(CSV.encode(CHARGES))
    table: Any = parquet.read_table(io.BytesIO(PARQUET.encode(CHARGES)))
    assert [Decimal(row["BilledCost"]) for row in rows] == table["BilledCost"].to_pylist()
    assert rows[0]["ChargePeriodStart"] == "2026-11-01T00:00:00Z"
    assert rows[0]["ChargeClass"] == ""


MANDATORY_1_4 = (
    *("BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency"),
    *("BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory", "ChargeClass"),
    *("ChargeDescription", "ChargePeriodEnd", "ChargePeriodStart", "ContractedCost"),
    *("EffectiveCost", "HostProviderName", "InvoiceIssuerName", "ListCost", "PricingQuantity"),
    *("PricingUnit", "ServiceCategory", "ServiceName", "ServiceProviderName"),
)


def test_review2_f11_focus_1_4_has_its_own_columns_of_providers_and_the_same_amounts() -> None:
    parquet_1_4, csv_1_4 = FOCUS_1_4
    table: Any = parquet.read_table(io.BytesIO(parquet_1_4.encode(CHARGES)))
    names = set(table.column_names)
    assert names >= set(MANDATORY_1_4)
    assert not names & {"ProviderName", "PublisherName"}
    assert names - set(COLUMNS) == {"ServiceProviderName", "HostProviderName"}
    assert table["ServiceProviderName"].to_pylist() == ["Tunery"] * 2
    old, new = read(CSV.encode(CHARGES)), read(csv_1_4.encode(CHARGES))
    for before, after in zip(old, new, strict=True):
        assert {name: after[name] for name in after if name in before} == {
            name: before[name] for name in before if name in after
        }
    assert {kind: len(formats) for kind, formats in FORMATS.items()} == {
        "1.2": 3,
        "1.4": 3,
        "both": 5,
    }
    assert len({each.kind for each in FORMATS["both"]}) == 5, "each has a folder of its own"


def test_plain_csv_is_no_formula_and_keeps_numbers() -> None:
    odd = charge(sliced(replace(lease(1), job_id="=HYPERLINK(1)"), 5))
    row, credit = read(PLAIN_CSV.encode([odd, CHARGES[1]]))
    assert row["job_id"] == "'=HYPERLINK(1)"
    assert (row["gpu_ms"], credit["gpu_ms"]) == ("5", "-1")
    assert credit["amount"].startswith("-0.0000006")
