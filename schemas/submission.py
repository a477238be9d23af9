"""What a tenant asks for when it submits a job, and what it is estimated to need and to cost."""

from typing import Annotated, Any, TypeAlias

from msgspec import Meta, structs

from schemas.benchmark import Benchmark
from schemas.billing import Lane
from schemas.billing import Price as Price
from schemas.dataset import BaseTokens, LengthPolicy, Prepared, ReasoningPolicy
from schemas.envelope import Part, Sha256
from schemas.integrations import Integration
from schemas.model import Base
from schemas.pool import Role
from schemas.sealed import Sealed
from schemas.session import SavedIn, SessionTerms
from schemas.training import AdapterStart, Device, HyperParameters, LeaseHardware, NodeConstraints
from schemas.units import GpuMs, Micro, Tokens


class UsageSource(Part):
    """Attributes of usage, besides its time, that its price may depend on."""

    role: Role = "train"  # purpose of the lease
    hardware: LeaseHardware | None = None  # hardware of the lease
    tokens: Tokens = 0  # trained tokens that are billed; below zero: credited
    # price_version, lane: price of a credit, whose job may be forgotten by then; None: use
    price_version: str | None = None
    lane: Lane | None = None


class Estimate(Part):
    """Expected resources and price of a job."""

    tokens: Tokens  # trained tokens, over all epochs
    steps: int  # optimizer steps
    train_gpu_ms: GpuMs  # GPU time of the training
    eval_gpu_ms: GpuMs  # GPU time of the evaluation
    hold_gpu_ms: GpuMs  # reserved GPU time: an upper bound that its use never exceeds
    memory_bytes: int  # what one slot needs
    price_micro: Micro  # price of the expected use
    price_max_micro: Micro  # price of the hold
    currency: str  # currency of the prices


class Budget(Part):
    """Maximum cost of one job. Neither its hold nor its use exceeds it."""

    max_gpu_ms: GpuMs | None = None  # cap of GPU time, None: no such cap
    max_amount_micro: Micro | None = None  # cap of the amount, None: no such cap


class Pace(Part):
    """How long the past jobs most like this one took, in millionths of what the formula expects."""

    train_ppm: int  # pace of trainings
    eval_ppm: int  # pace of evaluations


class MixtureFile(Part):
    """A further file that a job trains on."""

    # file_id, weight_ppm: see `MixedFile`
    file_id: str
    weight_ppm: int
    sha256: Sha256  # hash of its content
    tokens: BaseTokens  # tokens of its rows under the job's base model


class EvaluationTerms(Part):
    """A job that trains nothing: the gate judges what is in its `start`."""

    # it came from elsewhere, or a session has saved it, and becomes a version. Otherwise it is a
    # version already.
    imported: bool
    # rows that its training had held back; None: the job's file, or no rows
    prepared: Prepared | None = None
    saved_in: SavedIn | None = None  # the session that has saved it, None: none has


class Variant(Part):
    """One of the configurations that a job trains in turns."""

    run_id: str  # id of its run in the sweep
    # hyper, auto, configuration: see `JobSpec`
    hyper: HyperParameters
    auto: tuple[str, ...] = ()
    configuration: str = ""


Tags: TypeAlias = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=64)]],
    Meta(max_length=16, description="labels, by which jobs are listed"),
]


def text(path: str, form: Any, *, answer: str = "", filters: bool = False) -> Meta:
    """Declare a setting that may quote the tenant: sealed on the log under the name of its field.

    path: path in the body of a submission and in a recipe
    form: type of the value; a string is sealed as it is, everything else as JSON
    answer: name in the answer, where it is not the last part of `path`
    filters: a list of jobs is filtered by its values
    """
    return Meta(extra={"path": path, "form": form, "answer": answer, "filters": filters})


class JobSettings(Part, kw_only=True):
    """Settings of a job, apart from its base model, files and hyper-parameters.

    Texts are declared here alone: the field of the body, the seal on the log, the answer, the
    recipe and the filter of the list follow from the declaration.
    """

    length_policy: LengthPolicy  # what happens to rows that are too long
    validation_fraction_ppm: int  # share of the rows that validates, in millionths
    slots: int  # how many slots it trains on
    budget: Budget | None = None  # what it may cost, None: no cap of its own
    # loss of accuracy at which the gate blocks, None: the gate's own
    drop_max_ppm: int | None = None
    constraints: NodeConstraints | None = None  # constraints on nodes; None: any node
    reasoning: ReasoningPolicy = "keep"  # what becomes of the reasoning of answers
    measured_rows: int = 0  # how many validation rows are answered for `measures`
    benchmark_items: int = 0  # largest number of items of each benchmark
    # part of its model's name
    suffix: Annotated[Sealed | None, text("suffix", str, answer="user_provided_suffix")] = None
    # the tenant's own pairs
    metadata: Annotated[Sealed | None, text("metadata", dict[str, str])] = None
    # texts that base and adapter answer, None: the bundled ones
    prompts: Annotated[Sealed | None, text("eval.prompts", list[str])] = None
    # what answers to its validation rows are measured by, None: by nothing
    measures: Annotated[Sealed | None, text("eval.measures", list[Any])] = None
    # grader of its answers; None: its method grades none
    grader: Annotated[Sealed | None, text("method.reinforcement.grader", dict[str, Any])] = None
    # labels of the tenant's own
    tags: Annotated[Sealed | None, text("tags", Tags, filters=True)] = None


class JobSpec(JobSettings, kw_only=True):
    """Resolved specification of a job: no "auto" left, every input named."""

    base: Base  # the base model
    training_file: str  # the file it trains on
    validation_file: str | None  # the file it validates on, None: a share of the files it trains on
    hyper: HyperParameters  # the resolved hyper-parameters
    auto: tuple[str, ...]  # names of those that were "auto" in the request
    pool: str  # pool of nodes that it runs in
    series: str  # series in the registry; it does not reveal the suffix
    model_id: str  # id that its version will get: "ft:…", with the suffix sealed
    price: Price  # what it is admitted at
    device: Device = "cpu"  # kind of device that every slot must be
    # parts of the request that have no effect; they are reported to the tenant
    ignored: tuple[str, ...] = ()
    # hash of what makes its result: base model, contents of its files, settings; empty: the writer
    # did not say
    configuration: str = ""
    duplicate_of: str | None = None  # an earlier job with the same one, None: there was none
    # what its training begins with, None: an adapter that has learnt nothing
    start: AdapterStart | None = None
    pace: Pace | None = None  # how long such jobs took of late, None: too few have ended
    same_rows: bool = False  # the validation file has the bytes of the training file
    sweep_id: str | None = None  # the sweep that it is a job of, None: of none
    mixture: tuple[MixtureFile, ...] = ()  # further files it trains on
    evaluation: EvaluationTerms | None = None  # it trains nothing, None: it trains
    # benchmarks that both sides answer, besides the bundled questions
    benchmarks: tuple[Benchmark, ...] = ()
    # shares of these items after which the gate may decide, rising to all; empty: they are asked at
    # once
    looks_ppm: tuple[int, ...] = ()
    # tools that its figures are written for, in the order of the request
    integrations: tuple[Integration, ...] = ()
    # configurations that it trains in turns in one process, to keep the one with the lowest
    # validation loss; until then `hyper` is the one with the largest micro-batches; None: only one
    variants: tuple[Variant, ...] = ()
    # its process takes commands of the tenant, None: it trains on its files
    session: SessionTerms | None = None

    def of_variant(self, number: int | None) -> "JobSpec":
        """Return the specification with the settings of the chosen variant; None: unchanged."""
        if number is None or number not in range(len(self.variants)):
            return self
        left = self.variants[number]
        return structs.replace(
            self, hyper=left.hyper, auto=left.auto, configuration=left.configuration
        )


class KeyCap(Part):
    """Spending cap of the API key that a job was submitted with."""

    key_id: str
    spend_cap_micro: Micro  # what jobs of the key may cost in a calendar month
    currency: str = ""  # currency of the cap; empty: the currency of the job
