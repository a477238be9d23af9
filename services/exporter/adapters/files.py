"""Charges as files: FOCUS 1.2 and 1.4 as Parquet and CSV, and a plain CSV."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any, Final, NamedTuple

from services.exporter.domain.focus import (
    COLUMNS,
    COLUMNS_1_4,
    KIND_COLUMNS,
    ExportedCharge,
)
from tunery.billing.cells import safe_cell

DIGITS: Final = (38, 12)  # of decimals in Parquet
COLUMNS_1_2: Final[Mapping[str, str]] = {name: name for name in COLUMNS}
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
    **KIND_COLUMNS,
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


def focus_parquet(columns: Mapping[str, str], charges: Sequence[ExportedCharge]) -> bytes:
    """FOCUS with decimals and times in UTC. `columns`: name → the charge's column of its value."""
    import pyarrow
    from pyarrow import parquet

    types = {
        str: pyarrow.string(),
        int: pyarrow.int64(),
        Decimal: pyarrow.decimal128(*DIGITS),
        datetime: pyarrow.timestamp("ms", tz="UTC"),
    }
    schema = pyarrow.schema([(name, types[COLUMNS[source]]) for name, source in columns.items()])
    rows = [
        {name: charge.columns[source] for name, source in columns.items()} for charge in charges
    ]
    target = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema), target)
    return target.getvalue()


def as_csv(columns: Mapping[str, str], charges: Sequence[ExportedCharge]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(
        [_cell(charge.columns[source]) for source in columns.values()] for charge in charges
    )
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


PLAIN_CSV: Final = FileFormat("csv", ".csv", partial(as_csv, PLAIN))
FOCUS_1_2: Final = (
    FileFormat("focus-parquet", ".parquet", partial(focus_parquet, COLUMNS_1_2)),
    FileFormat("focus-csv", ".csv", partial(as_csv, COLUMNS_1_2)),
)
FOCUS_1_4: Final = (
    FileFormat("focus-1.4-parquet", ".parquet", partial(focus_parquet, COLUMNS_1_4)),
    FileFormat("focus-1.4-csv", ".csv", partial(as_csv, COLUMNS_1_4)),
)
#: by the setting `focus`; the plain CSV is for people: the event's place is in its last columns
FORMATS: Final[Mapping[str, tuple[FileFormat, ...]]] = {
    "1.2": (*FOCUS_1_2, PLAIN_CSV),
    "1.4": (*FOCUS_1_4, PLAIN_CSV),
    "both": (*FOCUS_1_2, *FOCUS_1_4, PLAIN_CSV),
}
