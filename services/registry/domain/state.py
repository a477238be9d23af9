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
    """One adapter version of a tenant."""

    terms: VersionTerms  # submitted terms
    published: bool = False  # false while its files are copied to their final keys
    quarantined: bool = False  # the gate blocked it, or a person; it is not promoted
    stage: Stage = "dev"
    files: tuple[BlobFile, ...] = ()  # files at their final keys
    approvals: tuple[Approval, ...] = ()  # for promotions, the oldest first
    held_back: bool = False  # a person keeps it in quarantine, whatever the gate says
    # newest run of the gate over it since its publication; None: there was none
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
    """Version that holds a stage of a series."""

    model_id: str | None
    former: tuple[str, ...] = ()  # earlier holders, oldest first


class CheckpointPermission(Struct, frozen=True, kw_only=True):
    """A permission to fetch a checkpoint."""

    checkpoint_id: str
    share: Share


class ActiveDeployment(Struct, frozen=True, kw_only=True):
    """A deployment, and what came of it."""

    deployment: Deployment
    traffic: tuple[ArmTraffic, ...] = ()  # counts of each version; empty: nothing was counted yet
    seen: bytes = b""  # the buckets of callers that were answered, one bit each; empty: none


class TenantModels(Struct, frozen=True, kw_only=True):
    versions: Map[str, ModelVersion] = Map()  # versions by model id
    holders: Map[str, StageHolder] = Map()  # id of the version that holds a stage, by `holder_key`
    # permissions that this tenant gave, by their ids
    shared: Map[str, CheckpointPermission] = Map()
    policies: Map[str, GatePolicy] = Map()  # policies of the gate, by base model
    rules: Map[str, ApprovalRule] = Map()  # what promotions need, by stage
    deployments: Map[str, ActiveDeployment] = Map()  # deployments by `holder_key`
    deleted: Map[str, DeletedVersion] = Map()  # versions that can be restored, by model id
    kept: Map[str, str] = Map()  # versions that open jobs begin with, by the id of the job
    erased: bool = False  # the tenant is erased, or this is under way: nothing is added any more


class Registry(Struct, frozen=True, kw_only=True):
    """State of one partition."""

    bases: Map[str, Base] = Map()  # base models by id
    tenants: Map[str, TenantModels] = Map()  # models by tenant
    drifted: Map[str, str] = Map()  # hashes of base models whose files have changed, by base id
    benchmarks: Map[str, Benchmark] = Map()  # benchmarks by name


INITIAL: Final = Registry()


def holder_key(series: str, stage: Stage) -> str:
    """Key of `TenantModels.holders`."""
    return f"{stage}/{series}"


def holder_of(models: TenantModels, series: str, stage: Stage) -> StageHolder:
    """The holder of a stage; without a model where the stage was never held."""
    return models.holders.get(holder_key(series, stage), StageHolder(model_id=None))


def former_of(models: TenantModels, series: str, stage: Stage) -> str | None:
    """The latest former holder that is neither deleted nor in quarantine.

    One that holds a stage is none: it would leave production when staging is rolled back to it.
    """
    for model_id in reversed(holder_of(models, series, stage).former):
        version = models.versions.get(model_id)
        if version is None or version.quarantined or version.stage in EXCLUSIVE:
            continue
        return model_id
    return None


def missing_approvals(models: TenantModels, version: ModelVersion, stage: Stage) -> int:
    """How many more approvals a version needs for a stage. Its author may not give one."""
    rule = models.rules.get(stage)
    if rule is None:
        return 0
    keys = {approval.key_id for approval in version.approvals if approval.stage == stage}
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
