"""Nouns of training and evaluation: what a process is given, what it keeps, what it hands back."""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import structs

from schemas.benchmark import Benchmark
from schemas.dataset import Prepared
from schemas.envelope import Part, Reason, Sha256
from schemas.sealed import Sealed
from schemas.units import Ms, Tokens

Device: TypeAlias = Literal["cpu", "cuda"]
DEVICES: Final[tuple[str, ...]] = get_args(Device)
# What a training adapts its base model by: see `HyperParameters`.
Adaptation: TypeAlias = Literal["lora", "qlora", "full"]
# Weights and configuration of what a training leaves: of an adapter, or of a whole model.
ADAPTER_FILES: Final = ("adapter_model.safetensors", "adapter_config.json")
WHOLE_FILES: Final = ("model.safetensors", "config.json")
TRAINED_FILES: Final = (*ADAPTER_FILES, *WHOLE_FILES)
# How an attempt ended. Preempted and lost are never failures.
AttemptOutcome: TypeAlias = Literal["succeeded", "preempted", "lost", "failed", "not_started"]
# Why an attempt failed; each cause has one policy in `job`. `budget`: its cap was reached.
FailureCause: TypeAlias = Literal[
    "oom", "divergence", "bad_data", "bad_node", "user", "platform", "budget"
]

# What a training learns from its rows.
MethodName: TypeAlias = Literal[
    "supervised", "dpo", "orpo", "simpo", "kto", "reward", "cpo", "reinforcement"
]
# How a preference becomes a loss; the names are those of TRL's DPOTrainer.
LossType: TypeAlias = Literal[
    "sigmoid",
    "hinge",
    "ipo",
    "nca_pair",
    "bco_pair",
    "sppo_hard",
    "apo_zero",
    "apo_down",
    "discopop",
    "sigmoid_norm",
    "exo_pair",
    "robust",
]


class LeaseHardware(Part):
    """What a lease runs on, as far as its price may depend on it.

    device: what each slot is.
    accelerator: model of the device as operators call it: "h200"; empty: its nodes do not say.
    spot: all its nodes may be taken away at short notice.
    """

    device: Device = "cpu"
    accelerator: str = ""
    spot: bool = False


class NodeConstraints(Part):
    """What a job demands of the nodes that it runs on, beside device and memory.

    accelerator: model of their devices, as their agents say it: "h200"; empty: any.
    spot: whether it may be on nodes that may be taken away at short notice: they come first then,
      while its checkpoints bear it. None: it does not say; they come last.
    finish_by: when it should be done; None: it does not say.
    tolerations: taints of nodes that it may be on all the same.
    domain: it runs on nodes of this fabric domain; empty: of any.
    domain_wait_ms: how long an attempt waits for those before it takes others; None: as long as it
      takes.
    """

    accelerator: str = ""
    spot: bool | None = None
    finish_by: Ms | None = None
    tolerations: tuple[str, ...] = ()
    domain: str = ""
    domain_wait_ms: Ms | None = None


class ExpectedTime(Part):
    """How long an attempt should take from its start.

    p50_ms: half of those like it take no longer.
    p90_ms: nine of ten take no longer.
    """

    p50_ms: Ms
    p90_ms: Ms


class BlobFile(Part):
    """One file of a directory kept in object storage under a content-named key.

    name: path inside the directory.
    blob: key of the object.
    sha256: of the content.
    bytes: size of the content.
    """

    name: str
    blob: str
    sha256: Sha256
    bytes: int


def are_whole(files: Iterable[BlobFile]) -> bool:
    """Whether they are of a whole model, and not of an adapter."""
    return any(file.name == WHOLE_FILES[0] for file in files)


class Checkpoint(Part):
    """A state of a training that another attempt can go on from.

    It exists when its record is accepted.

    attempt: attempt of the job that wrote it.
    step: optimizer steps done.
    epoch_ppm: epochs done, in millionths.
    tokens: tokens trained on so far, over all attempts.
    manifest_sha256: of the manifest, which names every file by its hash.
    files: all its files, the manifest included.
    captured_ms: elapsed time of its lease when the state was captured.
    """

    attempt: int
    step: int
    epoch_ppm: int
    tokens: Tokens
    manifest_sha256: Sha256
    files: tuple[BlobFile, ...]
    captured_ms: Ms


class SkippedCheckpoint(Part):
    """A checkpoint that was named in the placement and could not be used.

    manifest_sha256: which one.
    reason: why.
    """

    manifest_sha256: Sha256
    reason: Reason


class HyperParameters(Part, omit_defaults=True):
    """Resolved numbers, never "auto". Rates are integers, so that the log holds no floats.

    n_epochs: passes over the rows that train.
    batch_size: packed rows of one optimizer step.
    learning_rate_ppb: peak learning rate in billionths: 2e-4 is 200_000.
    rank: of the LoRA adapter.
    alpha: scale of the LoRA adapter; alpha / rank multiplies its output.
    dropout_ppm: dropout of the adapter, in millionths.
    warmup_ppm: share of all steps in which the learning rate rises, in millionths.
    weight_decay_ppm: weight decay of the optimizer, in millionths.
    max_length: tokens of one packed row.
    seed: of the order of rows, of dropout and of the adapter's first values.
    precision: arithmetic of the base model; "auto" follows the device.
    checkpoint_every_steps: a checkpoint is written at least every so many steps.
    checkpoint_every_ms: and at least every so often.
    keep_checkpoints: how many of the newest are named in a placement.
    accumulation: micro-batches that a step is computed in; divides `batch_size`.
    threads: of the processor that compute it: another number rounds elsewhere; 0: as its node says.
    checkpoint_share_ppm: share of the time that checkpoints may take, in millionths: one that is
      due by its step waits; 0: it does not, whatever it costs.
    scheduler: how the learning rate runs down once it has risen.
    max_steps: the training ends after so many optimizer steps; 0: after its epochs.
    grad_norm_max_ppm: longer gradients are scaled down to it, in millionths; 0: they are not.
    target_modules: names of the layers that are adapted; empty: all linear ones.
    rslora: alpha is divided by the square root of the rank.
    dora: the lengths of weights are learnt apart from their directions.
    lora_plus_ppm: learning rate of the matrices B by that of the matrices A, in millionths.
    neftune_ppm: strength of the noise that is added to embeddings, in millionths.
    eval_every_steps: the validation rows are scored every so many steps, beside the end of each
      epoch; 0: then only.
    best_checkpoint: the adapter is that of the step with the lowest validation loss, not the last.
    early_stopping_patience: the training ends after so many evaluations in a row that were no
      better than the best before; 0: it does not.
    checkpoint_each_epoch: one is written at the end of each epoch, whatever it costs.
    recompute: activations are computed again for the backward pass: less memory, more time.
    offload: the layers of a base that is only read stay in the machine's memory, and are copied to
      the device whenever they are needed; activations are computed again then.
    shard_weights: of the layers' weights each slot has a share, and is told all others when needed;
      activations are computed again then.
    train_on_prompts: all tokens carry loss, not those of answers alone.
    packing: the documents of a packed row are computed together; each by itself otherwise.
    rank_pattern, alpha_pattern: by the names of layers, where they differ from `rank` and `alpha`.
    modules_to_save: names of layers that are trained as a whole and are part of the adapter.
    method: what is learnt of a row.
    beta_ppm: how closely preferences hold the model to its reference, in millionths; 0: the method
      has no such weight.
    loss_type: how a preference becomes a loss.
    adaptation: what is trained: an adapter, one on a base model in four bits, or every weight.
    label_smoothing_ppm: share of pairs that are taken to be the wrong way round, in millionths.
    gamma_ppm: by how much the preferred answer is to be ahead, in millionths.
    desirable_ppm, undesirable_ppm: weights of answers with the label true and false, in millionths.
    sample_every_steps: the job's prompts are answered every so many steps; 0: not while it trains.
    num_generations: answers to each prompt that are graded; 0: the method writes none.
    max_completion_length: tokens of such an answer.
    temperature_ppm: how different they are, in millionths.
    center_rewards_ppm: how strongly the rewards of a pair are held to a sum of 0, in millionths.
    """

    n_epochs: int
    batch_size: int
    learning_rate_ppb: int
    rank: int
    alpha: int
    dropout_ppm: int
    warmup_ppm: int
    weight_decay_ppm: int
    max_length: int
    seed: int
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    checkpoint_every_steps: int = 20
    checkpoint_every_ms: Ms = 600_000
    keep_checkpoints: int = 3
    accumulation: int = 1
    threads: int = 0
    checkpoint_share_ppm: int = 0
    scheduler: Literal["linear", "cosine", "constant", "wsd"] = "linear"
    max_steps: int = 0
    grad_norm_max_ppm: int = 1_000_000
    target_modules: tuple[str, ...] = ()
    rslora: bool = False
    dora: bool = False
    lora_plus_ppm: int = 1_000_000
    neftune_ppm: int = 0
    eval_every_steps: int = 0
    best_checkpoint: bool = False
    early_stopping_patience: int = 0
    checkpoint_each_epoch: bool = False
    recompute: bool = False
    train_on_prompts: bool = False
    packing: bool = True
    rank_pattern: tuple[tuple[str, int], ...] = ()
    alpha_pattern: tuple[tuple[str, int], ...] = ()
    modules_to_save: tuple[str, ...] = ()
    method: MethodName = "supervised"
    beta_ppm: int = 0
    loss_type: LossType = "sigmoid"
    adaptation: Adaptation = "lora"
    label_smoothing_ppm: int = 0
    gamma_ppm: int = 0
    desirable_ppm: int = 1_000_000
    undesirable_ppm: int = 1_000_000
    sample_every_steps: int = 0
    num_generations: int = 0
    max_completion_length: int = 0
    temperature_ppm: int = 1_000_000
    center_rewards_ppm: int = 0
    offload: bool = False
    shard_weights: bool = False


class AdapterStart(Part):
    """An adapter or a whole model of the tenant that a training begins with.

    model_id: the version or the checkpoint, as the request named it.
    sha256: of its weights.
    files: its configuration and its weights.
    """

    model_id: str
    sha256: Sha256
    files: tuple[BlobFile, ...]


class TrainWork(Part, tag="train"):
    """What a training does, whichever attempt and node it runs in.

    base_id: the base model.
    base_sha256: what nodes find at `base_path` must have this hash.
    base_path: where nodes find the base model.
    prepared: the packed rows.
    hyper: the resolved hyper-parameters.
    start: what it begins with, None: an adapter that has learnt nothing.
    prompts: as in the job's `JobSpec`, where they are answered during the training.
    grader: as in the job's `JobSpec`.
    variants: hyper-parameters of trainings that take turns in its process, in place of `hyper`; of
      them it leaves the one with the lowest validation loss. None: it is one training.
    """

    base_id: str
    base_sha256: Sha256
    base_path: str
    prepared: Prepared
    hyper: HyperParameters
    start: AdapterStart | None = None
    prompts: Sealed | None = None
    grader: Sealed | None = None
    variants: tuple[HyperParameters, ...] = ()


class EvalWork(Part, tag="eval"):
    """What an evaluation compares: the base model and an adapter made from it.

    base_id, base_sha256, base_path: as in `TrainWork`.
    prepared: holds the validation rows and prompts.
    max_length: tokens of one packed row.
    seed: of what is sampled.
    adapter: files of the adapter.
    prompts: as in the job's `JobSpec`.
    precision, threads, method, beta_ppm, loss_type, adaptation, label_smoothing_ppm, gamma_ppm,
      desirable_ppm, undesirable_ppm, max_completion_length: as in the training's
      `HyperParameters`.
    grader, measures, measured_rows, benchmarks, benchmark_items: as in the job's `JobSpec`.
    share_ppm: of these items, which are asked up to this look of the gate.
    scored: scores of the look before, which hold all but the items that are new; None: there was
      none.
    """

    base_id: str
    base_sha256: Sha256
    base_path: str
    prepared: Prepared
    max_length: int
    seed: int
    adapter: tuple[BlobFile, ...]
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    threads: int = 0
    prompts: Sealed | None = None
    method: MethodName = "supervised"
    beta_ppm: int = 0
    loss_type: LossType = "sigmoid"
    adaptation: Adaptation = "lora"
    label_smoothing_ppm: int = 0
    gamma_ppm: int = 0
    desirable_ppm: int = 1_000_000
    undesirable_ppm: int = 1_000_000
    max_completion_length: int = 0
    grader: Sealed | None = None
    measures: Sealed | None = None
    measured_rows: int = 0
    benchmarks: tuple[Benchmark, ...] = ()
    benchmark_items: int = 0
    share_ppm: int = 1_000_000
    scored: BlobFile | None = None


class ServeWork(Part, tag="serve"):
    """What a replica of a serving pool answers with.

    serving_pool_id: the serving pool that it answers for.
    base_id, base_sha256, base_path: as in `TrainWork`.
    """

    serving_pool_id: str
    base_id: str
    base_sha256: Sha256
    base_path: str


Work: TypeAlias = TrainWork | EvalWork | ServeWork


class WorkDescription(Part):
    """A job's work, described once on each log; placements refer to it.

    job_id: the job.
    work_id: `work_id_of(work)`.
    work: what is to be done.
    """

    job_id: str
    work_id: Sha256
    work: Work


class TrainResult(Part, tag="trained"):
    """What a finished training leaves.

    adapter: files of the canonical adapter, as its agent stored them.
    config_sha256: of the resolved configuration that the process ran with.
    steps: optimizer steps, over all attempts.
    tokens: tokens trained on, over all attempts, of all variants.
    final_loss_ppm: loss of the last step in millionths, None: it was not finite.
    variant: number of the variant that all else is of, None: there are none.
    losses_ppm: of each variant on validation rows, in millionths; None: not known, or it diverged.
    """

    adapter: tuple[BlobFile, ...]
    config_sha256: Sha256
    steps: int
    tokens: Tokens
    final_loss_ppm: int | None
    variant: int | None = None
    losses_ppm: tuple[int | None, ...] = ()


class TrainingFacts(Part):
    """What the gate's suggestions rest on.

    learning_rate_ppb: at its highest, in billionths.
    epochs, steps: of the whole training.
    rows: that train, before packing.
    final_loss_ppm: loss of the last step in millionths, None: it was not finite.
    """

    learning_rate_ppb: int
    epochs: int
    steps: int
    rows: int
    final_loss_ppm: int | None


class EvalResult(Part, tag="scored"):
    """What a finished evaluation leaves. The service `eval` draws the verdict from it.

    scores: file with the raw scores of base and adapter, item by item.
    """

    scores: BlobFile


Result: TypeAlias = TrainResult | EvalResult


def files_of(result: Result) -> tuple[BlobFile, ...]:
    """The files that a lease has left."""
    return result.adapter if isinstance(result, TrainResult) else (result.scores,)


class EnvironmentChange(Part):
    """A fact of a node that differs from the one which wrote the checkpoint: results may, too.

    name: "instructions", for example.
    before, now: its values; empty: not known.
    """

    name: str
    before: str
    now: str


class AttemptStart(Part):
    """What a process says when it begins to work.

    loaded: manifest of the checkpoint it goes on from, None: it begins at step 0.
    loaded_step: step of that checkpoint, or 0.
    skipped: checkpoints that were named and could not be used.
    total_steps: optimizer steps of the whole training; 0 for an evaluation.
    changes: what is not as it was for the loaded checkpoint.
    environment: what it is computed with: device, versions of libraries, hashes of code and
      packages, by name.
    endpoint: where a replica answers, and what a connection to it needs; None: it is none.
    """

    loaded: Sha256 | None
    loaded_step: int
    skipped: tuple[SkippedCheckpoint, ...]
    total_steps: int
    changes: tuple[EnvironmentChange, ...] = ()
    environment: Mapping[str, str] = {}
    endpoint: Sealed | None = None


def added_fields(form: type[msgspec.Struct], *, first: Collection[str] = ()) -> dict[str, object]:
    """Fields that came after things of this form had hashes, with their defaults.

    first: those with a default that were there from the beginning
    """
    return {
        field.name: field.default
        for field in structs.fields(form)
        if field.default is not msgspec.NODEFAULT and field.name not in first
    }


HYPER_ADDED: Final = added_fields(
    HyperParameters,
    first=("precision", "checkpoint_every_steps", "checkpoint_every_ms", "keep_checkpoints"),
)
WORK_ADDED: Final = {form: added_fields(form) for form in (TrainWork, EvalWork, ServeWork)}


def work_id_of(work: Work) -> Sha256:
    """SHA-256 of the work's canonical bytes: JSON with sorted keys.

    A field that came later counts only where it differs from its default: journals refer to works
    of before it.
    """
    fields = drop_defaults(msgspec.to_builtins(work), WORK_ADDED[type(work)])
    if isinstance(work, TrainWork):
        fields["hyper"] = drop_defaults(structs.asdict(work.hyper), HYPER_ADDED)
    return hashlib.sha256(msgspec.json.encode(fields, order="sorted")).hexdigest()


def drop_defaults(fields: Mapping[str, Any], added: Mapping[str, object]) -> dict[str, Any]:
    """The fields for a hash: one that was added later counts only where it has another value."""
    return {
        name: value for name, value in fields.items() if name not in added or value != added[name]
    }
