"""Read models of base models, fine-tuned versions and the stages they hold."""

from typing import Final, Literal, TypeAlias

from schemas.benchmark import Benchmark
from schemas.gate import GatePolicy, GateRun, Verdict
from schemas.model import ApprovalRule, Base, Lineage, Stage
from schemas.sealed import Sealed
from schemas.training import BlobFile
from schemas.units import Ms
from services.gateway.views.table import Table, TableIndex, TableRow

ModelChange: TypeAlias = Literal[
    "published", "promotion", "rollback", "replaced", "approval", "gate", "deleted", "restored"
]


class BaseRow(TableRow):
    """A base model."""

    created_at: Ms
    base: Base
    # hash of its files today, if they differ from those that were added
    drifted_sha256: str | None = None


class ModelRow(TableRow):
    """A published version."""

    tenant: str
    sequence: int
    created_at: Ms
    series: str  # versions of one tenant, base model and suffix; at most one holds each stage
    lineage: Lineage
    files: tuple[BlobFile, ...]
    stage: Stage
    stage_at: Ms
    quarantined: bool  # by the gate or a person: it cannot be promoted
    deleted: bool  # hidden from all requests until it is restored
    # quarantine_cause, quarantine_by, quarantine_at: a person's last decision on the quarantine
    quarantine_cause: Sealed | None = None
    quarantine_by: Sealed | None = None
    quarantine_at: Ms | None = None
    erase_at: Ms | None = None  # when the files of a deleted version are erased
    run: GateRun | None = None  # newest run of the gate after its publication

    @property
    def verdict(self) -> Verdict:
        """Current verdict of the gate."""
        return self.lineage.verdict if self.run is None else self.run.verdict

    @property
    def gate_job(self) -> str:
        """Job of the gate's run that gave the verdict."""
        return self.lineage.job_id if self.run is None else self.run.job_id

    @property
    def base_sha256(self) -> str:
        """Hash of the base model's files in the gate's run."""
        return self.lineage.base_sha256 if self.run is None else self.run.base_sha256


class PolicyRow(TableRow):
    """Policy of the gate. id: a base model, or EVERY_BASE."""

    tenant: str
    created_at: Ms
    policy: GatePolicy


class BenchmarkRow(TableRow):
    """Benchmark of the operator. id: its name."""

    created_at: Ms
    benchmark: Benchmark


class ModelChangeRow(TableRow):
    """Change of a version."""

    tenant: str
    sequence: int
    at: Ms
    model_id: str
    change: ModelChange
    # the version's stage from then on; for an approval, the approved stage
    stage: Stage
    actor: Sealed | None = None  # API key that requested it, if any


class ApprovalRuleRow(TableRow):
    """Approvals that a promotion needs. id: the stage."""

    tenant: str
    rule: ApprovalRule


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
POLICIES: Final = Table("policies", PolicyRow, key=("tenant", "id"), order="id")
BENCHMARKS: Final = Table("benchmarks", BenchmarkRow, key=("id",), order="id")
MODEL_CHANGES: Final = Table(
    "model_changes",
    ModelChangeRow,
    key=("tenant", "id"),
    order="sequence",
    indexes=(TableIndex(("tenant", "model_id", "sequence")),),
)
APPROVAL_RULES: Final = Table("approval_rules", ApprovalRuleRow, key=("tenant", "id"), order="id")
PERMISSIONS: Final = Table(
    "permissions",
    PermissionRow,
    key=("tenant", "id"),
    order="sequence",
    indexes=(TableIndex(("project_id", "checkpoint_id")),),
)
