"""State of `model`: base models of the partition, versions and stage holders of tenants."""

from typing import Final

from immutables import Map
from msgspec import Struct

from schemas.benchmark import Benchmark
from schemas.deployments import ArmTraffic, Deployment
from schemas.gate import GatePolicy, GateRun
from schemas.model import Approval, ApprovalRule, Base, HeldStage, Share, Stage, VersionTerms
from schemas.training import BlobFile
from schemas.units import Ms

EXCLUSIVE: Final[tuple[HeldStage, ...]] = ("staging", "production")  # one holder per series
FORMER_MAX: Final = 16  # how far back a stage can be rolled, step by step
SHARED_MAX: Final = 1_000  # permissions of one tenant
POLICIES_MAX: Final = 100  # of the gate, of one tenant
BENCHMARKS_MAX: Final = 200
APPROVERS_MAX: Final = 100  # keys of a rule
APPROVALS_MAX: Final = 200  # of a version
VERSIONS_MAX: Final = 10_000  # versions of one tenant that are not deleted
DELETED_MAX: Final = 10_000  # versions of one tenant that can be restored


class ModelVersion(Struct, frozen=True, kw_only=True):
    """One adapter version of a tenant.

    terms: as it was submitted
    published: false while its files are copied to their final keys
    quarantined: the gate blocked it, or a person; it is not promoted
    held_back: a person keeps it in quarantine, whatever the gate says
    files: at their final keys
    approvals: for promotions, the oldest first
    run: the gate's newest one over it since its publication; None: there was none
    """

    terms: VersionTerms
    published: bool = False
    quarantined: bool = False
    stage: Stage = "dev"
    files: tuple[BlobFile, ...] = ()
    approvals: tuple[Approval, ...] = ()
    held_back: bool = False
    run: GateRun | None = None

    @property
    def base_sha256(self) -> str:
        """The files of the base model that the gate judged it with."""
        return self.terms.lineage.base_sha256 if self.run is None else self.run.base_sha256

    @property
    def unusable(self) -> bool:
        """The scores that the gate saw were not finite."""
        return self.terms.lineage.unusable if self.run is None else self.run.unusable


class DeletedVersion(Struct, frozen=True, kw_only=True):
    """A version that can be restored until `erase_at`."""

    version: ModelVersion
    erase_at: Ms


class StageHolder(Struct, frozen=True, kw_only=True):
    """Which version holds a stage of a series. `former`: earlier holders, oldest first."""

    model_id: str | None
    former: tuple[str, ...] = ()


class CheckpointPermission(Struct, frozen=True, kw_only=True):
    """A permission to fetch a checkpoint."""

    checkpoint_id: str
    share: Share


class ActiveDeployment(Struct, frozen=True, kw_only=True):
    """A deployment, and what came of it.

    traffic: counts of each version; empty: nothing was counted yet
    seen: the buckets of callers that were answered, one bit each; empty: none
    """

    deployment: Deployment
    traffic: tuple[ArmTraffic, ...] = ()
    seen: bytes = b""


class TenantModels(Struct, frozen=True, kw_only=True):
    """Models of one tenant.

    versions: by model id
    holders: by `holder_key`
    shared: permissions that this tenant gave, by their ids
    policies: of the gate, by base model
    rules: what promotions need, by stage
    deployments: by `holder_key`
    deleted: versions that can be restored, by model id
    kept: versions that open jobs begin with, by the id of the job
    erased: the tenant is erased, or this is under way: nothing is added any more
    """

    versions: Map[str, ModelVersion] = Map()
    holders: Map[str, StageHolder] = Map()
    shared: Map[str, CheckpointPermission] = Map()
    policies: Map[str, GatePolicy] = Map()
    rules: Map[str, ApprovalRule] = Map()
    deployments: Map[str, ActiveDeployment] = Map()
    deleted: Map[str, DeletedVersion] = Map()
    kept: Map[str, str] = Map()
    erased: bool = False


class Registry(Struct, frozen=True, kw_only=True):
    """State of one partition. `bases`: by base id; `tenants`: by tenant.

    drifted: hashes of base models whose files have changed, by base id
    benchmarks: by name
    """

    bases: Map[str, Base] = Map()
    tenants: Map[str, TenantModels] = Map()
    drifted: Map[str, str] = Map()
    benchmarks: Map[str, Benchmark] = Map()


INITIAL: Final = Registry()


def holder_key(series: str, stage: Stage) -> str:
    """Key of `TenantModels.holders`."""
    return f"{stage}/{series}"


def holder_of(models: TenantModels, series: str, stage: Stage) -> StageHolder:
    """The holder of a stage; without a model where the stage was never held."""
    return models.holders.get(holder_key(series, stage), StageHolder(model_id=None))


def former_of(models: TenantModels, series: str, stage: Stage) -> str | None:
    """The latest former holder that is neither deleted nor in quarantine."""
    holder = holder_of(models, series, stage)
    for model_id in reversed(holder.former):
        version = models.versions.get(model_id)
        if version is not None and not version.quarantined and model_id != holder.model_id:
            return model_id
    return None


def missing_approvals(models: TenantModels, version: ModelVersion, stage: Stage) -> int:
    """How many more approvals a version needs for a stage. Its author's own never counts."""
    rule = models.rules.get(stage)
    if rule is None:
        return 0
    keys = {approval.key_id for approval in version.approvals if approval.stage == stage}
    keys -= {version.terms.author}
    if rule.approvers:
        keys &= {*rule.approvers}
    return max(0, rule.required - len(keys))


def descendant_of(models: TenantModels, model_id: str) -> str | None:
    """A version that was trained from this one, None: there is none."""
    return next(
        (
            name
            for name, version in models.versions.items()
            if version.terms.lineage.start_id == model_id and name != model_id
        ),
        None,
    )
