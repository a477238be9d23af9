"""What a tenant asks for when it submits a job, and what it is estimated to need and to cost."""

from msgspec import structs

from schemas.account import Lane
from schemas.benchmark import Benchmark
from schemas.billing import Rate
from schemas.dataset import BaseTokens, LengthPolicy, Prepared
from schemas.envelope import Part, Sha256
from schemas.integrations import Integration
from schemas.model import Base
from schemas.pool import Role
from schemas.sealed import Sealed
from schemas.training import AdapterStart, Device, HyperParameters, LeaseHardware, NodeConstraints
from schemas.units import GpuMs, Micro, Tokens


class Price(Part):
    """One lane's prices out of one version of the price book, as shown with the estimate.

    version: of the price book.
    currency: of the prices.
    gpu_hour_micro: one GPU-hour.
    token_micro_per_million: a million tokens, as a comparison.
    lane: service class that the prices are of, None: the writer did not say.
    rates: exceptions of the lane.
    """

    version: str
    currency: str
    gpu_hour_micro: Micro
    token_micro_per_million: Micro = 0
    lane: Lane | None = None
    rates: tuple[Rate, ...] = ()


class UsageSource(Part):
    """What the price of some use may depend on besides its time.

    role: what it was used for.
    hardware: what it was used on.
    tokens: trained with it, and billed; below zero: given back.
    """

    role: Role = "train"
    hardware: LeaseHardware | None = None
    tokens: Tokens = 0


class Estimate(Part):
    """What a job is expected to need.

    tokens: trained on, over all epochs.
    steps: optimizer steps.
    train_gpu_ms: of the training.
    eval_gpu_ms: of the evaluation.
    hold_gpu_ms: what is held: an upper bound that its use never passes.
    memory_bytes: what one slot needs.
    price_micro: of what is expected.
    price_max_micro: of the hold.
    currency: of the prices.
    """

    tokens: Tokens
    steps: int
    train_gpu_ms: GpuMs
    eval_gpu_ms: GpuMs
    hold_gpu_ms: GpuMs
    memory_bytes: int
    price_micro: Micro
    price_max_micro: Micro
    currency: str


class Budget(Part):
    """What one job may cost at most. Its hold is never above it, so neither is its use.

    max_gpu_ms: as GPU time, None: no such cap.
    max_amount_micro: as an amount, None: no such cap.
    """

    max_gpu_ms: GpuMs | None = None
    max_amount_micro: Micro | None = None


class Pace(Part):
    """How long the past jobs most like this one took, in millionths of what the formula expects.

    train_ppm: of trainings.
    eval_ppm: of evaluations.
    """

    train_ppm: int
    eval_ppm: int


class MixtureFile(Part):
    """A further file that a job trains on.

    file_id, weight_ppm: as in `MixedFile`.
    sha256: of its content.
    tokens: of its rows under the job's base model.
    """

    file_id: str
    weight_ppm: int
    sha256: Sha256
    tokens: BaseTokens


class EvaluationTerms(Part):
    """A job that trains nothing: the gate judges what is in its `start`.

    imported: it came from elsewhere, and becomes a version. Otherwise it is a version already.
    prepared: rows that its training had held back; None: the job's file, or no rows.
    """

    imported: bool
    prepared: Prepared | None = None


class Variant(Part):
    """One of the configurations that a job trains in turns.

    run_id: of its run in the sweep.
    hyper, auto, configuration: as in `JobSpec`.
    """

    run_id: str
    hyper: HyperParameters
    auto: tuple[str, ...] = ()
    configuration: str = ""


class JobSpec(Part):
    """What the tenant asked for, resolved by the gateway: no "auto" left, every input named.

    base: the base model.
    training_file: the file it trains on.
    validation_file: the file it validates on, None: a share of the files it trains on.
    hyper: the resolved hyper-parameters.
    auto: names of those that were "auto" in the request.
    length_policy: what happens to rows that are too long.
    validation_fraction_ppm: share of the rows that validates, in millionths.
    slots: how many slots it trains on.
    pool: where it runs.
    suffix: part of its model's name.
    metadata: the tenant's own pairs.
    series: of the registry; it does not reveal the suffix.
    model_id: id that its version will get: "ft:…", with the suffix sealed.
    price: what it is admitted at.
    device: kind of device that every slot must be.
    budget: what it may cost, None: no cap of its own.
    drop_max_ppm: loss of accuracy at which the gate blocks, None: the gate's own.
    constraints: which nodes it may run on, None: any.
    ignored: parts of the request that do nothing here; the tenant is told.
    prompts: a JSON array of texts that base and adapter answer, None: the bundled ones.
    configuration: hash of what makes its result: base model, contents of its files, settings;
      empty: the writer did not say.
    duplicate_of: an earlier job with the same one, None: there was none.
    start: what its training begins with, None: an adapter that has learnt nothing.
    pace: how long such jobs took of late, None: too few have ended.
    same_rows: the validation file has the bytes of the training file.
    sweep_id: the sweep that it is a job of, None: of none.
    grader: what says the worth of its answers, as JSON; None: its method grades none.
    measures: a JSON array of what answers to its validation rows are measured by, None: by nothing.
    measured_rows: how many of these rows are answered for that.
    mixture: further files it trains on.
    evaluation: it trains nothing, None: it trains.
    benchmarks: that both sides answer, besides the bundled questions.
    benchmark_items: at most so many items of each.
    looks_ppm: shares of these items after which the gate may decide, rising to all; empty: they are
      asked at once.
    integrations: tools that its figures are written for, in the order of the request.
    variants: that it trains in turns in one process, to leave the one with the lowest validation
      loss; until then `hyper` is that of one with the largest micro-batches. None: it has no more.
    """

    base: Base
    training_file: str
    validation_file: str | None
    hyper: HyperParameters
    auto: tuple[str, ...]
    length_policy: LengthPolicy
    validation_fraction_ppm: int
    slots: int
    pool: str
    suffix: Sealed | None
    metadata: Sealed | None
    series: str
    model_id: str
    price: Price
    device: Device = "cpu"
    budget: Budget | None = None
    drop_max_ppm: int | None = None
    constraints: NodeConstraints | None = None
    ignored: tuple[str, ...] = ()
    prompts: Sealed | None = None
    configuration: str = ""
    duplicate_of: str | None = None
    start: AdapterStart | None = None
    pace: Pace | None = None
    same_rows: bool = False
    sweep_id: str | None = None
    grader: Sealed | None = None
    measures: Sealed | None = None
    measured_rows: int = 0
    mixture: tuple[MixtureFile, ...] = ()
    evaluation: EvaluationTerms | None = None
    benchmarks: tuple[Benchmark, ...] = ()
    benchmark_items: int = 0
    looks_ppm: tuple[int, ...] = ()
    integrations: tuple[Integration, ...] = ()
    variants: tuple[Variant, ...] = ()

    def of_variant(self, number: int | None) -> "JobSpec":
        """What is true of the job once its training has left this variant; None: there is none."""
        if number is None or number not in range(len(self.variants)):
            return self
        left = self.variants[number]
        return structs.replace(
            self, hyper=left.hyper, auto=left.auto, configuration=left.configuration
        )


class KeyCap(Part):
    """The API key a job was submitted with, where the key may spend so much in a calendar month.

    key_id: the key.
    spend_cap_micro: how much.
    currency: in which; empty: that of the job, as before it was kept.
    """

    key_id: str
    spend_cap_micro: Micro
    currency: str = ""
