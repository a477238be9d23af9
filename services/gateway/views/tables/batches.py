"""Read models of batches, and of what their rows were answered until the files are written."""

from typing import Final

from schemas.batch import BatchClosingReason, BatchCounts, BatchEndpoint, BatchResult
from schemas.dataset import FileContent
from schemas.sealed import Sealed
from schemas.units import Ms
from services.gateway.views.table import Table, TableRow


class BatchRow(TableRow):
    """A batch. The columns up to `metadata` are those of `BatchTerms`."""

    tenant: str
    sequence: int
    created_at: Ms
    endpoint: BatchEndpoint
    input_file_id: str
    content: FileContent
    key_id: str
    window_ms: Ms
    output_expires_after_ms: Ms | None = None
    metadata: Sealed | None = None
    begun_at: Ms | None = None
    rows: int | None = None
    counts: BatchCounts | None = None
    why: BatchClosingReason | None = None  # no more rows are answered
    closing_at: Ms | None = None
    ended_at: Ms | None = None
    result: BatchResult | None = None


class BatchPartRow(TableRow):
    """Lines of rows that have ended; its id is the number of rows before them."""

    tenant: str
    batch_id: str
    lines: FileContent


BATCHES: Final = Table("batches", BatchRow, key=("tenant", "id"), order="sequence")
BATCH_PARTS: Final = Table(
    "batch_parts", BatchPartRow, key=("tenant", "batch_id", "id"), order="id"
)
