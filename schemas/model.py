"""Stream `model` (key: tenant, owner: registry): base models, adapter versions, stages.

Base models and benchmarks are global: `AddBase` and `AddBenchmark` are sent once to every
partition, with the key `GLOBAL`.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from schemas.deployments import CountTraffic, Deploy, Deployed, TrafficCounted
from schemas.envelope import Message, Part, Reason, Rejected, Repeated, Sha256, Tick
from schemas.erasure import EraseModels, ModelsErased
from schemas.gate import (
    AddBenchmark,
    BenchmarkAdded,
    BenchmarkRemoved,
    BenchmarkResult,
    GatePolicy,
    GatePolicySet,
    JudgeResult,
    MeasureResult,
    QuarantineSet,
    RecordGateRun,
    RemoveBenchmark,
    SafetyResult,
    SetGatePolicy,
    SetQuarantine,
)
from schemas.gate import GateComparison as GateComparison
from schemas.gate import Stage as Stage
from schemas.gate import Verdict as Verdict
from schemas.gate import VersionGated as VersionGated
from schemas.lifetime import (
    KeepVersion,
    ReleaseVersion,
    RestoreVersion,
    VersionErased,
    VersionKept,
    VersionReleased,
)
from schemas.reasons import Failure
from schemas.training import BlobFile, MethodName
from schemas.units import Ms

GLOBAL = "*"
HeldStage: TypeAlias = Literal["staging", "production"]  # by one version of a series


class Base(Part, omit_defaults=True):
    """A base model that jobs may start from.

    base_id: its name in requests.
    sha256: of its files; the bytes under one id never change.
    path: where nodes find it, checked by its hash.
    parameters: number of weights.
    context_length: tokens of the longest sequence.
    family: architecture, "llama" for example.
    licence: its SPDX identifier.
    hidden_size: width of its hidden states.
    layers, inner_size, vocabulary: its layers, the width inside of them that a token goes through
      (of all its experts together), its tokens; 0: the writer did not say.
    eager_heads: heads of attention without SDPA, which keeps each pair of tokens; 0: it has SDPA.
    aliases: other names of it in requests, so that scripts written for another service run.
    source, revision: where the public can load it from: its name and commit at a hub; empty:
      nowhere, or the writer did not say.
    shared: tenants may download its files.
    """

    base_id: str
    sha256: Sha256
    path: str
    parameters: int
    context_length: int
    family: str
    licence: str
    hidden_size: int
    layers: int = 0
    inner_size: int = 0
    vocabulary: int = 0
    eager_heads: int = 0
    aliases: tuple[str, ...] = ()
    source: str = ""
    revision: str = ""
    shared: bool = False


class LineageFile(Part):
    """A further file that a version was trained on.

    file_id, weight_ppm: as in `MixedFile`.
    sha256: of its content.
    """

    file_id: str
    weight_ppm: int
    sha256: Sha256


class Lineage(Part):
    """Where a version comes from: every input by content hash.

    job_id: the job that trained it.
    base_id, base_sha256: the base model.
    dataset_version: key of the prepared cache.
    training_sha256: of the packed training rows.
    config_sha256: of the resolved configuration that the process ran with.
    steps: optimizer steps.
    verdict: of the gate.
    scores_sha256: of the raw scores.
    environment: what its last attempt was computed with, by name; empty: the writer did not say.
    configuration: hash of what makes its result, as in `JobSpec`.
    start_id, start_sha256: the version or checkpoint that the training began with, and its weights;
      None: it began with the base model.
    unusable: its scores were not finite, so that its quarantine is for good.
    mixture: the further files it was trained on; they are part of `dataset_version`, too.
    method: what was learnt; a reward model writes no answers.
    imported: it was trained elsewhere. Then `job_id` is the job that evaluated it, and what it was
      trained on is not known: its `dataset_version` is empty, unless rows of the tenant judged it.
    """

    job_id: str
    base_id: str
    base_sha256: Sha256
    dataset_version: str
    training_sha256: Sha256
    config_sha256: Sha256
    steps: int
    verdict: Verdict
    scores_sha256: Sha256
    environment: Mapping[str, str] = {}
    configuration: str = ""
    start_id: str | None = None
    start_sha256: Sha256 | None = None
    unusable: bool = False
    mixture: tuple[LineageFile, ...] = ()
    method: MethodName = "supervised"
    imported: bool = False


class Share(Part):
    """Who may fetch a checkpoint besides its owner.

    permission_id: the permission.
    project_id: the other tenant.
    """

    permission_id: str
    project_id: str


class VersionTerms(Part):
    """One adapter version of a tenant.

    model_id: its name: "ft:…". The suffix in it is sealed; before it was in the clear.
    series: the versions of one tenant, base and suffix; stages are per series.
    lineage: where it comes from.
    author: the API key that its job was submitted with; None: the writer did not say.
    """

    model_id: str
    series: str
    lineage: Lineage
    author: str | None = None


class ApprovalRule(Part):
    """What a version needs before it may be promoted to a stage.

    stage: the stage.
    required: approvals of different keys, none of them the author's; 0: none are needed.
    approvers: keys whose approvals count; empty: every key.
    """

    stage: HeldStage
    required: int
    approvers: tuple[str, ...] = ()


class Approval(Part):
    """A key agrees that a version is promoted to a stage."""

    stage: HeldStage
    key_id: str


class ScoreSummary(Part):
    """The gate's verdict in integers.

    verdict: what the gate says.
    reasons: what the verdict rests on.
    items: prompts that both answered.
    base_correct: of these, how many the base model answered well.
    adapter_correct: how many the adapter answered well.
    p_value_ppm: of the hypothesis that both are alike, in millionths.
    base_loss_ppm, adapter_loss_ppm: loss on the validation rows, in millionths.
    base_exact_match_ppm, adapter_exact_match_ppm: share of exact answers, in millionths.
    comparisons: with the base model, and with the version in production, on the bundled questions
      and on each benchmark; empty: the writer did not say.
    policy: what it was judged by, None: the writer did not say.
    measures: of the tenant's own rows; the first decides.
    suggestions: what to change where it does not pass.
    judge: what a judge said; None: the job asked for none.
    benchmarks: right answers to the items of each.
    safety: refusals in each benchmark of safety.
    look, looks_ppm: which of the planned looks it was made at, as in `VerdictDue`.
    """

    verdict: Verdict
    reasons: tuple[Reason, ...]
    items: int
    base_correct: int
    adapter_correct: int
    p_value_ppm: int
    base_loss_ppm: int
    adapter_loss_ppm: int
    base_exact_match_ppm: int
    adapter_exact_match_ppm: int
    comparisons: tuple[GateComparison, ...] = ()
    policy: GatePolicy | None = None
    measures: tuple[MeasureResult, ...] = ()
    suggestions: tuple[Reason, ...] = ()
    judge: JudgeResult | None = None
    benchmarks: tuple[BenchmarkResult, ...] = ()
    safety: tuple[SafetyResult, ...] = ()
    look: int = 1
    looks_ppm: tuple[int, ...] = ()


# --- commands
class AddBase(Message):
    """Jobs may start from this base model. Its key is `GLOBAL`.

    base: the base model.
    """

    base: Base


class PinBase(Message):
    """A job needs a base model, as it was when the job was submitted.

    job_id: the job.
    base_id, base_sha256: the base model.
    """

    job_id: str
    base_id: str
    base_sha256: Sha256


class RegisterVersion(Message):
    """A job has made a version: publish it.

    terms: the version.
    adapter: its files, where its agent stored them.
    """

    terms: VersionTerms
    adapter: tuple[BlobFile, ...]


class RecordPublished(Message):
    """Result of the publish effect.

    model_id: the version.
    files: of the artifact, under their final, content-named keys.
    failure: why there are none.
    """

    model_id: str
    files: tuple[BlobFile, ...]
    failure: Failure | None = None


class Promote(Message):
    """Compare-and-swap of the holder of a stage.

    model_id: the new holder.
    stage: the stage.
    expected: the version that must hold it now, None: no version.
    """

    model_id: str
    stage: Stage
    expected: str | None


class RollBack(Message):
    """The stage goes back to the version that held it before.

    series: whose stage.
    stage: the stage.
    expected: as in `Promote`.
    """

    series: str
    stage: Stage
    expected: str


class DeleteVersion(Message):
    """The version goes; its files are kept for a while.

    model_id: the version.
    erase: its files go at once, also those of a version that was deleted before.
    """

    model_id: str
    erase: bool = False


class SetApprovalRule(Message):
    """What promotions to a stage need from now on.

    rule: the rule.
    """

    rule: ApprovalRule


class ApproveVersion(Message):
    """A key agrees that the version is promoted.

    model_id: the version.
    approval: who agrees, and to which stage.
    """

    model_id: str
    approval: Approval


class RecordBaseBytes(Message):
    """The files of a base model were hashed where they lie. Its key is `GLOBAL`.

    base_id: the base model.
    sha256: what they are now.
    """

    base_id: str
    sha256: Sha256


class ShareCheckpoint(Message):
    """Each of the tenants may fetch the checkpoint; those who may already are left as they are.

    checkpoint_id: the checkpoint.
    shares: a new permission for each tenant.
    """

    checkpoint_id: str
    shares: tuple[Share, ...]


class UnshareCheckpoint(Message):
    """Takes a permission back.

    permission_id: the permission.
    """

    permission_id: str


# --- events
class BaseAdded(Message):
    """Jobs of this partition may start from this base model.

    base: the base model.
    """

    base: Base


class BasePinned(Message):
    """The job can have its base model.

    job_id: the job.
    base: the base model.
    """

    job_id: str
    base: Base


class BaseRefused(Message):
    job_id: str
    failure: Failure


class VersionSubmitted(Message):
    """The version is being published.

    terms: the version.
    adapter: its files, where its agent stored them.
    """

    terms: VersionTerms
    adapter: tuple[BlobFile, ...]


class VersionPublished(Message):
    """The version is in stage dev.

    terms: the version.
    files: of the artifact, under their final, content-named keys.
    quarantined: the gate blocked it: it can be downloaded and not promoted.
    """

    terms: VersionTerms
    files: tuple[BlobFile, ...]
    quarantined: bool


class VersionFailed(Message):
    model_id: str
    job_id: str
    failure: Failure


class StageMoved(Message):
    """A version holds another stage.

    model_id: the version.
    series: its series.
    stage: the stage that it holds now.
    replaced: the version that held it, and goes back to dev, None: no version.
    by: what moved it.
    """

    model_id: str
    series: str
    stage: Stage
    replaced: str | None
    by: Literal["promotion", "rollback"]


class VersionDeleted(Message):
    """The version is gone.

    model_id: the version.
    files: what was published, to be removed from storage.
    job_id: the job that made it.
    erase_at: until then it can be restored, and its files stay; None: they go now.
    """

    model_id: str
    files: tuple[BlobFile, ...] = ()
    job_id: str | None = None
    erase_at: Ms | None = None


class VersionRestored(Message):
    """A version that was deleted is back, as it was.

    terms: the version.
    files: of the artifact.
    stage: the one that it holds: none that only one version can hold.
    """

    terms: VersionTerms
    files: tuple[BlobFile, ...]
    stage: Stage


class ApprovalRuleSet(Message):
    """Promotions to a stage need this.

    rule: the rule.
    """

    rule: ApprovalRule


class VersionApproved(Message):
    """A key agreed that the version is promoted.

    model_id: the version.
    approval: who agreed, and to which stage.
    """

    model_id: str
    approval: Approval


class BaseDrifted(Message):
    """The files of a base model are not those that it was added with: its versions are stale.

    base_id: the base model.
    sha256: what they are now.
    """

    base_id: str
    sha256: Sha256


class BaseRestored(Message):
    """The files of a base model are again those that it was added with.

    base_id: the base model.
    """

    base_id: str


class CheckpointShared(Message):
    """Another tenant may fetch the checkpoint.

    checkpoint_id: the checkpoint.
    share: the permission.
    """

    checkpoint_id: str
    share: Share


class CheckpointUnshared(Message):
    """The tenant may not fetch the checkpoint any more.

    checkpoint_id: the checkpoint.
    share: the permission that was taken back.
    """

    checkpoint_id: str
    share: Share


Command: TypeAlias = (
    AddBase
    | PinBase
    | RegisterVersion
    | RecordPublished
    | Promote
    | RollBack
    | DeleteVersion
    | RestoreVersion
    | KeepVersion
    | ReleaseVersion
    | SetApprovalRule
    | ApproveVersion
    | RecordBaseBytes
    | ShareCheckpoint
    | UnshareCheckpoint
    | SetGatePolicy
    | RecordGateRun
    | SetQuarantine
    | AddBenchmark
    | RemoveBenchmark
    | Deploy
    | CountTraffic
    | EraseModels
    | Tick
)
Event: TypeAlias = (
    BaseAdded
    | BasePinned
    | BaseRefused
    | VersionSubmitted
    | VersionPublished
    | VersionFailed
    | StageMoved
    | VersionDeleted
    | VersionErased
    | VersionRestored
    | VersionKept
    | VersionReleased
    | ApprovalRuleSet
    | VersionApproved
    | BaseDrifted
    | BaseRestored
    | CheckpointShared
    | CheckpointUnshared
    | GatePolicySet
    | VersionGated
    | QuarantineSet
    | BenchmarkAdded
    | BenchmarkRemoved
    | Deployed
    | TrafficCounted
    | ModelsErased
    | Rejected
    | Repeated
)
