"""Read models of base models, fine-tuned versions and the stages they hold."""

from typing import Final

from schemas.model import Base, Lineage, Stage
from schemas.training import BlobFile
from schemas.units import Ms
from services.gateway.views.table import Table, TableIndex, TableRow


class BaseRow(TableRow):
    created_at: Ms
    base: Base


class ModelRow(TableRow):
    """A published version.

    series: versions of one tenant, base model and suffix; a stage has one holder in it.
    quarantined: the gate blocked it, so it cannot be promoted.
    """

    tenant: str
    sequence: int
    created_at: Ms
    series: str
    lineage: Lineage
    files: tuple[BlobFile, ...]
    stage: Stage
    stage_at: Ms
    quarantined: bool


class PermissionRow(TableRow):
    """Another tenant (`project_id`) may fetch the checkpoint."""

    tenant: str
    sequence: int
    created_at: Ms
    checkpoint_id: str
    project_id: str


BASES: Final = Table("bases", BaseRow, key=("id",), order="id")
MODELS: Final = Table(
    "models",
    ModelRow,
    key=("tenant", "id"),
    order="sequence",
    indexes=(TableIndex(("tenant", "sequence")),),
)
PERMISSIONS: Final = Table(
    "permissions",
    PermissionRow,
    key=("tenant", "id"),
    order="sequence",
    indexes=(TableIndex(("project_id", "checkpoint_id")),),
)
