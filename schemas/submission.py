"""Specification of a submitted job, and its estimated resources and price."""

from typing import Annotated, Any, TypeAlias

from msgspec import Meta, structs

from schemas.benchmark import Benchmark
from schemas.billing import Lane
from schemas.billing import Price as Price
from schemas.dataset import BaseTokens, ChatFormat, LengthPolicy, Prepared, ReasoningPolicy
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
    tokens: Tokens = 0  # billed trained tokens; below zero: credited
    # price_version, lane: price of a credit, whose job may be forgotten by then; None for usage
    price_version: str | None = None
    lane: Lane | None = None


class Estimate(Part):
    """Expected resources and price of a job."""

    tokens: Tokens  # trained tokens, over all epochs
    steps: int  # optimizer steps
    train_gpu_ms: GpuMs  # GPU time of the training
    eval_gpu_ms: GpuMs  # GPU time of the evaluation
    hold_gpu_ms: GpuMs  # reserved GPU time: an upper bound that its use never exceeds
    memory_bytes: int  # memory of one slot
    price_micro: Micro  # price of the expected use
    price_max_micro: Micro  # price of the hold
    currency: str  # currency of the prices


class Budget(Part):
    """Maximum cost of one job. Neither its hold nor its use exceeds it."""

    max_gpu_ms: GpuMs | None = None  # None: no cap
    max_amount_micro: Micro | None = None  # None: no cap


class Pace(Part):
    """Time of the most similar past jobs, in millionths of the time that the formula estimates."""

    train_ppm: int  # of trainings
    eval_ppm: int  # of evaluations


class MixtureFile(Part):
    """A further file that a job trains on."""

    # file_id, weight_ppm: see `MixedFile`
    file_id: str
    weight_ppm: int
    sha256: Sha256  # hash of its content
    tokens: BaseTokens  # tokens of its rows under the job's base model


class EvaluationTerms(Part):
    """A job that trains nothing: the gate judges what is in its `start`."""

    # `start` was imported, or saved by a session, and becomes a version. Otherwise it is a version
    # already.
    imported: bool
    # validation rows that its training held out; None: the job's file, or no rows
    prepared: Prepared | None = None
    saved_in: SavedIn | None = None  # session that saved `start`; None: no session did


class Variant(Part):
    """One of several configurations that a job trains alternately in one process."""

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

    length_policy: LengthPolicy  # treatment of rows that are too long
    validation_fraction_ppm: int  # share of the rows for validation, in millionths
    slots: int  # number of slots for the training
    budget: Budget | None = None  # cap of its cost; None: no cap of its own
    # loss of accuracy at which the gate blocks; None: the policy's
    drop_max_ppm: int | None = None
    constraints: NodeConstraints | None = None  # constraints on nodes; None: any node
    reasoning: ReasoningPolicy = "keep"  # treatment of reasoning in answers
    measured_rows: int = 0  # number of validation rows that are answered for `measures`
    benchmark_items: int = 0  # maximum number of items of each benchmark
    # suffix of its model's name
    suffix: Annotated[Sealed | None, text("suffix", str, answer="user_provided_suffix")] = None
    # key-value pairs of the tenant
    metadata: Annotated[Sealed | None, text("metadata", dict[str, str])] = None
    # prompts that base and adapter answer; None: the bundled ones
    prompts: Annotated[Sealed | None, text("eval.prompts", list[str])] = None
    # measures of answers to its validation rows; None: no measures
    measures: Annotated[Sealed | None, text("eval.measures", list[Any])] = None
    # grader of sampled answers; None: its method samples none
    grader: Annotated[Sealed | None, text("method.reinforcement.grader", dict[str, Any])] = None
    # text of a chat template; None: the base model's
    chat_template: Annotated[Sealed | None, text("training.chat_template", str)] = None
    # additional tokens that end a turn; None: only the base model's
    eot_tokens: Annotated[Sealed | None, text("training.eot_tokens", list[str])] = None
    # the tenant's labels
    tags: Annotated[Sealed | None, text("tags", Tags, filters=True)] = None


class JobSpec(JobSettings, kw_only=True):
    """Resolved specification of a job: no "auto" left, every input named."""

    base: Base  # the base model
    training_file: str  # id of the file with training rows
    validation_file: str | None  # None: a share of the training rows validates
    hyper: HyperParameters  # the resolved hyper-parameters
    auto: tuple[str, ...]  # names of hyper-parameters that were "auto" in the request
    pool: str  # name of the pool of nodes
    series: str  # series in the registry; it does not reveal the suffix
    model_id: str  # id of its future version: "ft:…", with the suffix sealed
    price: Price  # price at admission
    device: Device = "cpu"  # kind of device of every slot
    # parts of the request that have no effect; they are reported to the tenant
    ignored: tuple[str, ...] = ()
    # hash of all that determines its result: base model, contents of files, settings; empty: an
    # older release wrote this
    configuration: str = ""
    # earlier job with the same `configuration`; None: there was none
    duplicate_of: str | None = None
    # adapter to begin with; None: a new one
    start: AdapterStart | None = None
    pace: Pace | None = None  # pace of similar recent jobs; None: too few have ended
    same_rows: bool = False  # the validation file has the bytes of the training file
    sweep_id: str | None = None  # sweep that it belongs to
    mixture: tuple[MixtureFile, ...] = ()  # further files with training rows
    evaluation: EvaluationTerms | None = None  # None: a training; otherwise the job only evaluates
    # benchmarks that base and adapter answer, besides the bundled questions
    benchmarks: tuple[Benchmark, ...] = ()
    # interim analyses: increasing shares of the items, the last one all, after each of which the
    # gate may decide; empty: only at the end
    looks_ppm: tuple[int, ...] = ()
    # experiment trackers that get its figures, in the order of the request
    integrations: tuple[Integration, ...] = ()
    # configurations that it trains alternately in one process, to keep the one with the lowest
    # validation loss. Until then `hyper` is the one with the largest micro-batches.
    variants: tuple[Variant, ...] = ()
    # an interactive session that takes the tenant's commands; None: it trains on its files
    session: SessionTerms | None = None
    # hash of `chat_template` and `eot_tokens`; None: it has neither
    chat_sha256: Sha256 | None = None

    @property
    def chat(self) -> ChatFormat | None:
        """Its own chat template and end tokens; None: the base model's."""
        if self.chat_sha256 is None:
            return None
        return ChatFormat(
            sha256=self.chat_sha256, template=self.chat_template, eot_tokens=self.eot_tokens
        )

    def of_variant(self, number: int | None) -> "JobSpec":
        """Return the specification with the settings of the chosen variant; None: unchanged."""
        if number is None or number not in range(len(self.variants)):
            return self
        left = self.variants[number]
        return structs.replace(
            self, hyper=left.hyper, auto=left.auto, configuration=left.configuration
        )


class KeyCap(Part):
    """Spending cap of the API key that submitted a job."""

    key_id: str
    spend_cap_micro: Micro  # maximum cost of the key's jobs in a calendar month
    currency: str = ""  # currency of the cap; empty: the currency of the job
