"""Independent account of base models and versions, to compare with the registry."""

from collections import defaultdict
from dataclasses import dataclass, field

from schemas.deployments import ArmTraffic, Deployment
from schemas.gate import GatePolicy
from schemas.model import Approval, ApprovalRule, Base, HeldStage, Stage, VersionTerms
from schemas.training import BlobFile
from schemas.units import Ms

HELD: tuple[HeldStage, ...] = ("staging", "production")


@dataclass
class BookVersion:
    """base_sha256, unusable: values of the gate's last run. held_back: a person has quarantined
    it."""

    terms: VersionTerms
    adapter: tuple[BlobFile, ...]
    base_sha256: str
    unusable: bool
    published: bool = False
    files: tuple[BlobFile, ...] = ()
    quarantined: bool = False
    held_back: bool = False
    stage: Stage = "dev"
    approvals: set[Approval] = field(default_factory=set)
    gated_by: str | None = None
    erase_at: Ms | None = None


@dataclass
class Answering:
    """A deployment, the buckets that were answered, and the sums of each role."""

    deployment: Deployment
    buckets: set[int] = field(default_factory=set)
    sums: dict[str, ArmTraffic] = field(default_factory=dict)

    @property
    def shares(self) -> tuple[str, ...]:
        """Versions that have a share without holding the stage."""
        arms = (self.deployment.second, self.deployment.shadow)
        return tuple(arm.model_id for arm in arms if arm is not None)


@dataclass
class VersionsOfTenant:
    """deleted: versions that can be restored. former: who held a stage before, the oldest first.
    kept: versions that open jobs begin with, by job. shared: by permission.
    """

    versions: dict[str, BookVersion] = field(default_factory=dict)
    deleted: dict[str, BookVersion] = field(default_factory=dict)
    holders: dict[tuple[str, str], str] = field(default_factory=dict)
    former: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    answering: dict[tuple[str, str], Answering] = field(default_factory=dict)
    rules: dict[str, ApprovalRule] = field(default_factory=dict)
    policies: dict[str, GatePolicy] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    shared: dict[str, tuple[str, str]] = field(default_factory=dict)
    erased: bool = False

    def has_share(self, model_id: str) -> bool:
        return any(model_id in answering.shares for answering in self.answering.values())

    def lacks_approvals(self, version: BookVersion, stage: str) -> bool:
        """Different keys of the rule have to agree, and the author is none of them."""
        rule = self.rules.get(stage)
        if rule is None:
            return False
        keys = {approval.key_id for approval in version.approvals if approval.stage == stage}
        keys -= {version.terms.author or ""}
        return len(keys & {*rule.approvers} if rule.approvers else keys) < rule.required


@dataclass
class Bases:
    """Base models and benchmarks of one partition, and its tenants. drifted: what their files are
    now.
    """

    bases: dict[str, Base] = field(default_factory=dict)
    drifted: dict[str, str] = field(default_factory=dict)
    benchmarks: dict[str, str] = field(default_factory=dict)
    tenants: dict[str, VersionsOfTenant] = field(default_factory=dict)

    def is_stale(self, version: BookVersion) -> bool:
        """True if the base model's files have changed since the gate evaluated the version."""
        base = self.bases.get(version.terms.lineage.base_id)
        if base is None:
            return False
        return self.drifted.get(base.base_id, base.sha256) != version.base_sha256
