"""Charges as files: FOCUS as Parquet and CSV, and a plain CSV."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple

from services.exporter.domain.focus import COLUMNS, ExportedCharge
from tunery.billing.cells import safe_cell

DIGITS: Final = (38, 12)  # of decimals in Parquet
PLAIN: Final[Mapping[str, str]] = {
    "tenant": "BillingAccountId",
    "hour": "ChargePeriodStart",
    "job_id": "ResourceId",
    "attempt": "x_Attempt",
    "role": "x_Role",
    "kind": "ChargeCategory",
    "cause": "x_Cause",
    "lane": "x_Lane",
    "price": "SkuPriceId",
    "used_gpu_ms": "x_UsedGpuMilliseconds",
    "gpu_ms": "x_GpuMilliseconds",
    "tokens": "x_Tokens",
    "amount": "BilledCost",
    "currency": "BillingCurrency",
    "description": "ChargeDescription",
    "topic": "x_Topic",
    "partition": "x_JournalPartition",
    "incarnation": "x_Incarnation",
    "offset": "x_JournalOffset",
}


class FileFormat(NamedTuple):
    """A kind of file: its folder, the end of its name, and how rows become bytes."""

    kind: str
    suffix: str
    encode: Callable[[Sequence[ExportedCharge]], bytes]


def focus_parquet(charges: Sequence[ExportedCharge]) -> bytes:
    """FOCUS with decimals and times in UTC."""
    import pyarrow
    from pyarrow import parquet

    types = {
        str: pyarrow.string(),
        int: pyarrow.int64(),
        Decimal: pyarrow.decimal128(*DIGITS),
        datetime: pyarrow.timestamp("ms", tz="UTC"),
    }
    schema = pyarrow.schema([(name, types[kind]) for name, kind in COLUMNS.items()])
    rows = [dict(charge.columns) for charge in charges]
    target = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema), target)
    return target.getvalue()


def focus_csv(charges: Sequence[ExportedCharge]) -> bytes:
    return _csv(COLUMNS, (charge.columns.values() for charge in charges))


def plain_csv(charges: Sequence[ExportedCharge]) -> bytes:
    """A CSV for people: the event's place is in the last columns."""
    return _csv(PLAIN, ([charge.columns[name] for name in PLAIN.values()] for charge in charges))


def _csv(names: Iterable[str], rows: Iterable[Iterable[Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    match value:
        case None:
            return ""
        case datetime():
            return f"{value:%Y-%m-%dT%H:%M:%SZ}"
        case Decimal():
            return f"{value:f}"
        case _:
            return safe_cell(value)


FORMATS: Final = (
    FileFormat("focus-parquet", ".parquet", focus_parquet),
    FileFormat("focus-csv", ".csv", focus_csv),
    FileFormat("csv", ".csv", plain_csv),
)
