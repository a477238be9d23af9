"""Nouns of training and evaluation: what a process is given, what it keeps, what it hands back."""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec
from msgspec import structs

from schemas.benchmark import Benchmark
from schemas.dataset import ChatFormat, Prepared
from schemas.envelope import Part, Reason, Sha256
from schemas.sealed import Sealed
from schemas.units import Ms, Tokens

Device: TypeAlias = Literal["cpu", "cuda"]
DEVICES: Final[tuple[str, ...]] = get_args(Device)
# What a training adapts its base model by: see `HyperParameters`.
Adaptation: TypeAlias = Literal["lora", "qlora", "full"]
# Type of the base model's weights; "fp8": bf16, multiplied in eight bits; "auto": the device's.
Precision: TypeAlias = Literal["auto", "bf16", "fp32", "fp8"]
# What runs the steps of a training: one process, or a process group of torch's or DeepSpeed's.
EngineName: TypeAlias = Literal["single", "fsdp2", "deepspeed"]
# What turns gradients into steps: torch's AdamW, bitsandbytes' with moments in eight bits, or
# torch's Muon for matrices and AdamW for all else.
OptimizerName: TypeAlias = Literal["adamw", "adamw_8bit", "muon"]
# Weights and configuration of what a training leaves: of an adapter, or of a whole model.
ADAPTER_FILES: Final = ("adapter_model.safetensors", "adapter_config.json")
WHOLE_FILES: Final = ("model.safetensors", "config.json")
TRAINED_FILES: Final = (*ADAPTER_FILES, *WHOLE_FILES)
# How an attempt ended. Preempted and lost are never failures.
AttemptOutcome: TypeAlias = Literal["succeeded", "preempted", "lost", "failed", "not_started"]
# Why an attempt failed; each cause has one policy in `job`. `budget`: its cap was reached.
FailureCause: TypeAlias = Literal[
    "oom", "divergence", "bad_data", "bad_node", "user", "platform", "budget", "nothing_learnt"
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
    """Hardware of a lease, as far as its price may depend on it."""

    device: Device = "cpu"  # what each slot is
    # model of the device as operators call it: "h200"; empty: its nodes do not say
    accelerator: str = ""
    spot: bool = False  # all its nodes may be taken away at short notice


class NodeConstraints(Part):
    """Requirements of a job on its nodes, besides device type and memory."""

    accelerator: str = ""  # model of their devices, as their agents say it: "h200"; empty: any
    # true: spot nodes come first, while its checkpoints bear losing them; false: none; None: they
    # come last
    spot: bool | None = None
    finish_by: Ms | None = None  # when it should be done; None: it does not say
    tolerations: tuple[str, ...] = ()  # taints of nodes that it may be on all the same
    domain: str = ""  # fabric domain of its nodes; empty: any
    # how long an attempt waits for nodes of `domain` before it takes others; None: as long as it
    # takes
    domain_wait_ms: Ms | None = None


class ExpectedTime(Part):
    """How long an attempt should take from its start."""

    p50_ms: Ms  # half of such attempts take no longer
    p90_ms: Ms  # nine of ten such attempts take no longer


class BlobFile(Part):
    """One file of a directory kept in object storage under a content-named key."""

    name: str  # path inside the directory
    blob: str  # key of the object
    sha256: Sha256  # hash of the content
    bytes: int  # size of the content


def are_whole(files: Iterable[BlobFile]) -> bool:
    """Return whether the files are those of a whole model and not of an adapter."""
    return any(file.name == WHOLE_FILES[0] for file in files)


class Checkpoint(Part):
    """A state of a training that another attempt can continue from.

    It exists when its record is accepted.
    """

    attempt: int  # attempt of the job that wrote it
    step: int  # optimizer steps done
    epoch_ppm: int  # epochs done, in millionths
    tokens: Tokens  # tokens trained on so far, over all attempts
    manifest_sha256: Sha256  # hash of the manifest, which names every file by its hash
    files: tuple[BlobFile, ...]  # all its files, the manifest included
    captured_ms: Ms  # elapsed time of its lease when the state was captured


class SkippedCheckpoint(Part):
    """A checkpoint that was named in the placement and could not be used."""

    manifest_sha256: Sha256  # hash of its manifest
    reason: Reason


class HyperParameters(Part, omit_defaults=True):
    """Resolved numbers, never "auto". Rates are integers, so that the log holds no floats."""

    n_epochs: int  # passes over the rows that train
    batch_size: int  # packed rows of one optimizer step
    learning_rate_ppb: int  # peak learning rate in billionths: 2e-4 is 200_000
    rank: int  # rank of the LoRA adapter
    alpha: int  # scale of the LoRA adapter; alpha / rank multiplies its output
    dropout_ppm: int  # dropout of the adapter, in millionths
    warmup_ppm: int  # share of all steps in which the learning rate rises, in millionths
    weight_decay_ppm: int  # weight decay of the optimizer, in millionths
    max_length: int  # tokens of one packed row
    seed: int  # seed of the order of rows, of dropout and of the adapter's first values
    # arithmetic of the base model; "auto" follows the device
    precision: Precision = "auto"
    checkpoint_every_steps: int = 20  # largest number of steps between checkpoints
    checkpoint_every_ms: Ms = 600_000  # longest time between checkpoints
    keep_checkpoints: int = 3  # number of the newest checkpoints that a placement names
    accumulation: int = 1  # micro-batches that a step is computed in; divides `batch_size`
    # CPU threads that compute it: another number rounds differently; 0: the node's choice
    threads: int = 0
    # share of the time that checkpoints may take, in millionths: one that is due by its step waits;
    # 0: it never waits
    checkpoint_share_ppm: int = 0
    # how the learning rate runs down once it has risen
    scheduler: Literal["linear", "cosine", "constant", "wsd"] = "linear"
    max_steps: int = 0  # the training ends after so many optimizer steps; 0: after its epochs
    # longer gradients are scaled down to it, in millionths; 0: they are not
    grad_norm_max_ppm: int = 1_000_000
    # names of the layers that are adapted; empty: all linear ones
    target_modules: tuple[str, ...] = ()
    rslora: bool = False  # alpha is divided by the square root of the rank
    dora: bool = False  # the lengths of weights are learnt apart from their directions
    # learning rate of the matrices B by that of the matrices A, in millionths
    lora_plus_ppm: int = 1_000_000
    neftune_ppm: int = 0  # strength of the noise that is added to embeddings, in millionths
    # the validation rows are scored every so many steps, besides the end of each epoch; 0: only
    # then
    eval_every_steps: int = 0
    # the adapter is that of the step with the lowest validation loss, not the last
    best_checkpoint: bool = False
    # the training ends after so many evaluations in a row that were no better than the best before;
    # 0: it does not
    early_stopping_patience: int = 0
    # a checkpoint is written at the end of each epoch, at any cost
    checkpoint_each_epoch: bool = False
    # activations are computed again for the backward pass: less memory, more time
    recompute: bool = False
    train_on_prompts: bool = False  # all tokens carry loss, not those of answers alone
    # the documents of a packed row are computed together; each by itself otherwise
    packing: bool = True
    # rank_pattern, alpha_pattern: rank and alpha by name of layer, where they differ from `rank`
    # and `alpha`
    rank_pattern: tuple[tuple[str, int], ...] = ()
    alpha_pattern: tuple[tuple[str, int], ...] = ()
    # names of layers that are trained as a whole and are part of the adapter
    modules_to_save: tuple[str, ...] = ()
    method: MethodName = "supervised"  # what is learnt of a row
    # how closely preferences hold the model to its reference, in millionths; 0: the method has no
    # such weight
    beta_ppm: int = 0
    loss_type: LossType = "sigmoid"  # how a preference becomes a loss
    # what is trained: an adapter, one on a base model in four bits, or every weight
    adaptation: Adaptation = "lora"
    # share of pairs that are taken to be the wrong way round, in millionths
    label_smoothing_ppm: int = 0
    gamma_ppm: int = 0  # margin by which the preferred answer is to be ahead, in millionths
    # desirable_ppm, undesirable_ppm: weights of answers with the label true and false, in
    # millionths
    desirable_ppm: int = 1_000_000
    undesirable_ppm: int = 1_000_000
    # the job's prompts are answered every so many steps; 0: not while it trains
    sample_every_steps: int = 0
    num_generations: int = 0  # answers to each prompt that are graded; 0: the method writes none
    max_completion_length: int = 0  # largest number of tokens in such an answer
    temperature_ppm: int = 1_000_000  # sampling temperature of these answers, in millionths
    # how strongly the rewards of a pair are held to a sum of 0, in millionths
    center_rewards_ppm: int = 0
    # weights and optimizer states stay in the machine's memory; a layer is copied to the device
    # when it is computed
    offload: bool = False
    # each slot keeps a share of every layer's weights and gathers a layer when it is computed
    # (FSDP2's `fully_shard`, ZeRO-3); otherwise each slot has all weights
    shard_weights: bool = False
    # the training fails once its steps show that nothing is learnt
    stop_if_nothing_learnt: bool = False
    engine: EngineName = "single"  # what runs its steps
    # ranks that compute each micro-batch together, each with a part of every layer's matrices
    tensor_parallel: int = 1
    # ranks that compute each micro-batch together, each with a part of every row's tokens
    context_parallel: int = 1
    # ranks of one node that share the weights, with `shard_weights`; each node has all of them; 0:
    # all ranks of the job
    shards: int = 0
    # how much of the loss that keeps the experts of a mixture evenly used is added, in millionths;
    # None: as much as the base model's own configuration says
    router_aux_loss_ppm: int | None = None
    optimizer: OptimizerName = "adamw"  # what turns gradients into steps


class AdapterStart(Part):
    """An adapter or a whole model of the tenant that a training begins with."""

    model_id: str  # the version or the checkpoint, as the request named it
    sha256: Sha256  # hash of its weights
    files: tuple[BlobFile, ...]  # its configuration and its weights


class TrainWork(Part, tag="train"):
    """Description of a training that is the same for all attempts and nodes."""

    base_id: str  # the base model
    base_sha256: Sha256  # what nodes find at `base_path` must have this hash
    base_path: str  # path of the base model on nodes
    prepared: Prepared  # the packed rows
    hyper: HyperParameters  # the resolved hyper-parameters
    # what it begins with, None: an adapter that has learnt nothing
    start: AdapterStart | None = None
    # see the job's `JobSpec`, where they are answered during the training
    prompts: Sealed | None = None
    grader: Sealed | None = None  # see the job's `JobSpec`
    # hyper-parameters of trainings that take turns in its process, in place of `hyper`; of them it
    # leaves the one with the lowest validation loss; None: it is one training
    variants: tuple[HyperParameters, ...] = ()
    takes_commands: bool = False  # its process takes commands of its session, and no rows
    chat: ChatFormat | None = None  # see the job's `PrepareSpec`


class EvalWork(Part, tag="eval"):
    """Description of an evaluation that compares the base model with an adapter made from it."""

    # base_id, base_sha256, base_path: see `TrainWork`
    base_id: str
    base_sha256: Sha256
    base_path: str
    prepared: Prepared  # holds the validation rows and prompts
    max_length: int  # tokens of one packed row
    seed: int  # seed of sampling
    adapter: tuple[BlobFile, ...]  # files of the adapter
    # precision, threads, method, beta_ppm, loss_type, adaptation, label_smoothing_ppm, gamma_ppm,
    # desirable_ppm, undesirable_ppm, max_completion_length: see the training's `HyperParameters`
    precision: Precision = "auto"
    threads: int = 0
    prompts: Sealed | None = None  # see the job's `JobSpec`
    method: MethodName = "supervised"
    beta_ppm: int = 0
    loss_type: LossType = "sigmoid"
    adaptation: Adaptation = "lora"
    label_smoothing_ppm: int = 0
    gamma_ppm: int = 0
    desirable_ppm: int = 1_000_000
    undesirable_ppm: int = 1_000_000
    max_completion_length: int = 0
    # grader, measures, measured_rows, benchmarks, benchmark_items: see the job's `JobSpec`
    grader: Sealed | None = None
    measures: Sealed | None = None
    measured_rows: int = 0
    benchmarks: tuple[Benchmark, ...] = ()
    benchmark_items: int = 0
    # share of these items that are asked up to this interim analysis of the gate
    share_ppm: int = 1_000_000
    # scores of the look before, which hold all but the items that are new; None: there was none
    scored: BlobFile | None = None
    prompts_max: int | None = None  # how many of the bundled prompts are answered; None: all
    questions_max: int | None = None  # how many of the bundled questions are asked; None: all


class ServeWork(Part, tag="serve"):
    """Description of the model that a replica of a serving pool serves."""

    serving_pool_id: str  # the serving pool that it answers for
    # base_id, base_sha256, base_path: see `TrainWork`
    base_id: str
    base_sha256: Sha256
    base_path: str


Work: TypeAlias = TrainWork | EvalWork | ServeWork


class WorkDescription(Part):
    """A job's work, described once on each log; placements refer to it."""

    job_id: str
    work_id: Sha256
    work: Work  # what is to be done


class TrainResult(Part, tag="trained"):
    """Output of a finished training."""

    adapter: tuple[BlobFile, ...]  # files of the canonical adapter, as its agent stored them
    config_sha256: Sha256  # hash of the resolved configuration that the process ran with
    steps: int  # optimizer steps, over all attempts
    tokens: Tokens  # tokens trained on, over all attempts, of all variants
    final_loss_ppm: int | None  # loss of the last step in millionths, None: it was not finite
    # number of the variant that the other fields describe; None: there are no variants
    variant: int | None = None
    # loss of each variant on validation rows, in millionths; None: not known, or it diverged
    losses_ppm: tuple[int | None, ...] = ()


class TrainingFacts(Part):
    """Figures of a training that the gate's suggestions are based on."""

    learning_rate_ppb: int  # peak learning rate, in billionths
    # epochs, steps: totals of the whole training
    epochs: int
    steps: int
    rows: int  # training rows before packing
    final_loss_ppm: int | None  # loss of the last step in millionths, None: it was not finite


class EvalResult(Part, tag="scored"):
    """Output of a finished evaluation. The service `eval` derives the verdict from it."""

    scores: BlobFile  # file with the raw scores of base and adapter, item by item


Result: TypeAlias = TrainResult | EvalResult


def files_of(result: Result) -> tuple[BlobFile, ...]:
    """The files that a lease has left."""
    return result.adapter if isinstance(result, TrainResult) else (result.scores,)


class EnvironmentChange(Part):
    """A fact of a node that differs from the one which wrote the checkpoint: results may, too."""

    name: str  # "instructions", for example
    # before, now: its values; empty: not known
    before: str
    now: str


class AttemptStart(Part):
    """Report of a process that starts to work."""

    loaded: Sha256 | None  # manifest of the checkpoint it continues from, None: it begins at step 0
    loaded_step: int  # step of that checkpoint, or 0
    skipped: tuple[SkippedCheckpoint, ...]  # checkpoints that were named and could not be used
    total_steps: int  # optimizer steps of the whole training; 0 for an evaluation
    changes: tuple[EnvironmentChange, ...] = ()  # what is not as it was for the loaded checkpoint
    # what it is computed with: device, versions of libraries, hashes of code and packages, by name
    environment: Mapping[str, str] = {}
    # address of a replica, and what a connection to it needs; None: no replica
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
