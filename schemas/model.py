"""Stream `model` (key: tenant, owner: registry): base models, adapter versions, stages.

Base models and benchmarks are global: `AddBase` and `AddBenchmark` are sent once to every
partition, with the key `GLOBAL`.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias

from schemas.dataset import ReasoningPolicy
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
from schemas.session import SavedIn
from schemas.training import Adaptation, BlobFile, MethodName
from schemas.units import Ms

HeldStage: TypeAlias = Literal["staging", "production"]  # by one version of a series


class TemplateProof(Part):
    """Abilities of a base model's chat template, found when it was added."""

    # a conversation's text begins with the text up to its earlier answers, so that a server keeps
    # what it computed of them
    streams: bool
    end_token: str  # what ends an answer that is learnt
    tools: bool  # tools, their calls and results can be learnt
    reasoning: bool  # the reasoning of answers can be learnt


class BaseProof(TemplateProof):
    """Abilities of a base model, found when it was added. Jobs that they rule out are refused."""

    # "random": a small model of its family and settings, where its own weights are too large to
    # train on processors
    weights: Literal["own", "random"]
    # of "lora" and "full", those by which a step was trained; "qlora" goes by "lora"
    adaptations: tuple[Adaptation, ...]
    packs: bool  # documents of a packed row do not see each other
    targets: tuple[str, ...]  # names of the layers that an adapter can be on
    libraries: Mapping[str, str]  # versions of the libraries that showed it
    # memory of its steps, in fp32 on processors; 0: not recorded, or no step was taken
    weights_bytes: int = 0  # size of the base's own weights, as its files store them
    step_tokens: int = 0  # tokens of the row of each step
    # lora_bytes, full_bytes: peak of the process that took a LoRA step, a step of every weight
    lora_bytes: int = 0
    full_bytes: int = 0
    # bytes that layers keep for the backward pass, by `tunery.plan.memory.layers_bytes`
    kept_ppm: int = 0


class Base(Part, omit_defaults=True):
    """A base model that jobs may start from."""

    base_id: str  # its name in requests
    sha256: Sha256  # hash of its files; the bytes under one id never change
    path: str  # path on nodes, checked by its hash
    parameters: int  # number of weights
    context_length: int  # tokens of the longest sequence
    family: str  # architecture, "llama" for example
    licence: str  # its SPDX identifier
    hidden_size: int  # width of its hidden states
    # layers, inner_size, vocabulary: its layers, the width inside of them that a token goes through
    # (of all its experts together), its tokens; 0: not recorded
    layers: int = 0
    inner_size: int = 0
    vocabulary: int = 0
    # heads of attention without SDPA, which keeps each pair of tokens; 0: it has SDPA
    eager_heads: int = 0
    # other names of it in requests, so that scripts written for another service run
    aliases: tuple[str, ...] = ()
    # source, revision: public origin: name and commit at a hub; empty: none, or not recorded
    source: str = ""
    revision: str = ""
    shared: bool = False  # tenants may download its files
    proof: BaseProof | None = None  # None: nothing was tried, and nothing is refused for it


class LineageFile(Part):
    """A further file that a version was trained on."""

    # file_id, weight_ppm: see `MixedFile`
    file_id: str
    weight_ppm: int
    sha256: Sha256  # hash of its content


class Lineage(Part):
    """Provenance of a version: every input by content hash."""

    job_id: str  # the job that trained it
    # base_id, base_sha256: the base model
    base_id: str
    base_sha256: Sha256
    dataset_version: str  # key of the prepared cache
    training_sha256: Sha256  # hash of the packed training rows
    config_sha256: Sha256  # hash of the resolved configuration that the process ran with
    steps: int  # optimizer steps
    verdict: Verdict  # verdict of the gate
    scores_sha256: Sha256  # hash of the raw scores
    # what its last attempt was computed with, by name; empty: not recorded
    environment: Mapping[str, str] = {}
    configuration: str = ""  # hash of what makes its result, as in `JobSpec`
    # start_id, start_sha256: the version or checkpoint that the training began with, and its
    # weights; None: it began with the base model
    start_id: str | None = None
    start_sha256: Sha256 | None = None
    unusable: bool = False  # its scores were not finite, so that its quarantine is for good
    # the further files it was trained on; they are part of `dataset_version`, too
    mixture: tuple[LineageFile, ...] = ()
    method: MethodName = "supervised"  # what was learnt; a reward model writes no answers
    # it was trained elsewhere. Then `job_id` is the job that evaluated it, and what it was trained
    # on is not known: its `dataset_version` is empty, unless rows of the tenant judged it.
    imported: bool = False
    # a session has saved it, whose journal says what it was trained on; None: a job trained it.
    # Then `job_id` and `dataset_version` are as with `imported`.
    saved_in: SavedIn | None = None
    reasoning: ReasoningPolicy = "keep"  # what became of the reasoning of its rows
    # hash of its own chat template and end tokens, see `ChatFormat`; None: the base model's
    chat_sha256: Sha256 | None = None


class Share(Part):
    """Permission of another tenant to fetch a checkpoint."""

    permission_id: str
    project_id: str  # the other tenant


class VersionTerms(Part):
    """One adapter version of a tenant."""

    model_id: str  # its name: "ft:…". The suffix in it is sealed; before it was in the clear.
    series: str  # the versions of one tenant, base and suffix; stages are per series
    lineage: Lineage  # its provenance
    # the API key that its job was submitted with; None: not recorded
    author: str | None = None


class ApprovalRule(Part):
    """Approvals that a version needs before it may be promoted to a stage."""

    stage: HeldStage
    required: int  # approvals of different keys, none of them the author's; 0: none are needed
    approvers: tuple[str, ...] = ()  # keys whose approvals count; empty: every key


class Approval(Part):
    """A key agrees that a version is promoted to a stage."""

    stage: HeldStage
    key_id: str


class ScoreSummary(Part):
    """The gate's verdict in integers."""

    verdict: Verdict  # what the gate says
    reasons: tuple[Reason, ...]  # what the verdict rests on
    items: int  # prompts that both answered
    base_correct: int  # number of prompts that the base model answered well
    adapter_correct: int  # how many the adapter answered well
    p_value_ppm: int  # p-value for the hypothesis that both are alike, in millionths
    # base_loss_ppm, adapter_loss_ppm: loss on the validation rows, in millionths
    base_loss_ppm: int
    adapter_loss_ppm: int
    # base_exact_match_ppm, adapter_exact_match_ppm: share of exact answers, in millionths
    base_exact_match_ppm: int
    adapter_exact_match_ppm: int
    # with the base model, and with the version in production, on the bundled questions and on each
    # benchmark; empty: not recorded
    comparisons: tuple[GateComparison, ...] = ()
    policy: GatePolicy | None = None  # policy of the verdict; None: not recorded
    measures: tuple[MeasureResult, ...] = ()  # measures of the tenant's rows; the first decides
    suggestions: tuple[Reason, ...] = ()  # what to change where it does not pass
    judge: JudgeResult | None = None  # what a judge said; None: the job asked for none
    benchmarks: tuple[BenchmarkResult, ...] = ()  # right answers to the items of each
    safety: tuple[SafetyResult, ...] = ()  # refusals in each benchmark of safety
    # look, looks_ppm: the interim analysis that decided, and the planned ones, see `VerdictDue`
    look: int = 1
    looks_ppm: tuple[int, ...] = ()


# --- commands
class AddBase(Message):
    """Jobs may start from this base model. Its key is `GLOBAL`."""

    base: Base  # the base model


class PinBase(Message):
    """A job needs a base model, as it was when the job was submitted."""

    job_id: str
    # base_id, base_sha256: the base model
    base_id: str
    base_sha256: Sha256


class RegisterVersion(Message):
    """A job has made a version: publish it."""

    terms: VersionTerms  # the version
    adapter: tuple[BlobFile, ...]  # its files, where its agent stored them


class RecordPublished(Message):
    """Result of the publish effect."""

    model_id: str  # the version
    files: tuple[BlobFile, ...]  # files of the artifact, under their final, content-named keys
    failure: Failure | None = None  # why there are none


class Promote(Message):
    """Compare-and-swap of the holder of a stage."""

    model_id: str  # the new holder
    stage: Stage
    expected: str | None  # the version that must hold it now, None: no version


class RollBack(Message):
    """The stage goes back to the version that held it before."""

    series: str  # whose stage
    stage: Stage
    expected: str  # see `Promote`


class DeleteVersion(Message):
    """The version goes; its files are kept for a while."""

    model_id: str  # the version
    erase: bool = False  # its files go at once, also those of a version that was deleted before


class SetApprovalRule(Message):
    """Set the approvals that promotions to a stage need from now on."""

    rule: ApprovalRule


class ApproveVersion(Message):
    """A key agrees that the version is promoted."""

    model_id: str  # the version
    approval: Approval  # who agrees, and to which stage


class RecordBaseBytes(Message):
    """The files of a base model were hashed where they lie. Its key is `GLOBAL`."""

    base_id: str  # the base model
    sha256: Sha256  # what they are now


class ShareCheckpoint(Message):
    """Each of the tenants may fetch the checkpoint; those who may already are left as they are."""

    checkpoint_id: str
    shares: tuple[Share, ...]  # a new permission for each tenant


class UnshareCheckpoint(Message):
    """Takes a permission back."""

    permission_id: str


# --- events
class BaseAdded(Message):
    """Jobs of this partition may start from this base model."""

    base: Base  # the base model


class BasePinned(Message):
    """The job can have its base model."""

    job_id: str
    base: Base  # the base model


class BaseRefused(Message):
    job_id: str
    failure: Failure


class VersionSubmitted(Message):
    """The version is being published."""

    terms: VersionTerms  # the version
    adapter: tuple[BlobFile, ...]  # its files, where its agent stored them


class VersionPublished(Message):
    """The version is in stage dev."""

    terms: VersionTerms  # the version
    files: tuple[BlobFile, ...]  # files of the artifact, under their final, content-named keys
    quarantined: bool  # the gate blocked it: it can be downloaded and not promoted


class VersionFailed(Message):
    model_id: str
    job_id: str
    failure: Failure


class StageMoved(Message):
    """A version holds another stage."""

    model_id: str  # the version
    series: str
    stage: Stage  # the stage that it holds now
    replaced: str | None  # the version that held it, and goes back to dev, None: no version
    by: Literal["promotion", "rollback"]  # what moved it


class VersionDeleted(Message):
    """The version is gone."""

    model_id: str  # the version
    files: tuple[BlobFile, ...] = ()  # what was published, to be removed from storage
    job_id: str | None = None  # the job that made it
    # end of the time in which it can be restored, and its files stay; None: they go now
    erase_at: Ms | None = None


class VersionRestored(Message):
    """A version that was deleted is back, as it was."""

    terms: VersionTerms  # the version
    files: tuple[BlobFile, ...]  # files of the artifact
    stage: Stage  # the one that it holds: none that only one version can hold


class ApprovalRuleSet(Message):
    """Promotions to a stage need this."""

    rule: ApprovalRule


class VersionApproved(Message):
    """A key agreed that the version is promoted."""

    model_id: str  # the version
    approval: Approval  # who agreed, and to which stage


class BaseDrifted(Message):
    """The files of a base model are not those that it was added with: its versions are stale."""

    base_id: str  # the base model
    sha256: Sha256  # what they are now


class BaseRestored(Message):
    """The files of a base model are again those that it was added with."""

    base_id: str  # the base model


class CheckpointShared(Message):
    """Another tenant may fetch the checkpoint."""

    checkpoint_id: str
    share: Share  # the permission


class CheckpointUnshared(Message):
    """The tenant may not fetch the checkpoint any more."""

    checkpoint_id: str
    share: Share  # the permission that was taken back


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
