"""Read model of imports of accounts of other services."""

from typing import Final

from schemas.imports import ImportResult, ImportSource
from schemas.sealed import Sealed
from schemas.units import Ms
from services.gateway.views.table import Table, TableRow


class ImportRow(TableRow):
    """An import."""

    tenant: str
    sequence: int
    created_at: Ms
    source: ImportSource
    url: Sealed
    progress: Sealed | None = None
    ended_at: Ms | None = None
    result: ImportResult | None = None


IMPORTS: Final = Table("imports", ImportRow, key=("tenant", "id"), order="sequence")
