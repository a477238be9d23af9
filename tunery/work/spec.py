"""Specs of a training or scoring process: one JSON file, its only input.

The process reads and writes plain files; its caller fetches and stores them. Paths are absolute or
relative to the working directory of the process; times are milliseconds.
"""

from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from schemas.training import (
    Adaptation,
    EngineName,
    EvalWork,
    HyperParameters,
    LossType,
    MethodName,
    OptimizerName,
    Precision,
    added_fields,
)
from schemas.units import PPB, PPM, Ms
from tunery.work.questions import CALLS_MAX

Scheduler: TypeAlias = Literal["linear", "cosine", "constant", "wsd"]
Weights: TypeAlias = Literal["copied", "sharded"]

ALL_LINEAR: Final = "all-linear"  # layers that are adapted
MEASURED_TOKENS_MAX: Final = 128  # of an answer to a row that is measured
CHECKPOINTS_KEPT_MIN: Final = 2  # one may turn out to be damaged


class ResumeCandidate(Struct, frozen=True, kw_only=True):
    """A checkpoint to resume from."""

    dir: str  # its directory
    manifest_sha256: str  # hash of its manifest as the pool accepted it


class StartingAdapter(Struct, frozen=True, kw_only=True):
    """An adapter that a training begins with."""

    name: str  # name given by the user
    dir: str  # its directory
    sha256: str  # hash of its weights


class ObjectiveTerms(Struct, frozen=True, kw_only=True):
    """Fields that say how rows become a loss, in a training and in the scores of what it left."""

    method: MethodName = "supervised"  # what is learnt of a row
    # how closely preferences hold the model to its reference; 0: there is no such weight
    beta: float = 0.0
    loss_type: LossType = "sigmoid"  # how a preference becomes a loss
    # what is trained: an adapter, one on a base in four bits, or every weight; both sides are
    # scored on the base as it was trained on
    adaptation: Adaptation = "lora"
    label_smoothing: float = 0.0  # share of pairs that are taken to be the wrong way round
    gamma: float = 0.0  # margin by which the preferred answer is to be ahead
    # desirable, undesirable: weights of answers with the label true and false
    desirable: float = 1.0
    undesirable: float = 1.0
    max_completion_length: int = 0  # largest number of tokens of an answer that is graded

    @classmethod
    def read_log(cls, recorded: HyperParameters | EvalWork) -> dict[str, Any]:
        """Convert a record's fields of these names: its integers in millionths and billionths are
        floats here.
        """
        return {name: _from_log(recorded, name) for name in cls.__struct_fields__}


class Hyper(ObjectiveTerms, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hyper-parameters as the training loop computes with them; `from_log` makes them.

    None may be "auto": `tunery.plan.hyperparameters.resolve` settled that before there was a job,
    because the estimate and the hold rest on the numbers.
    """

    n_epochs: int
    batch_size: int  # packed rows of one micro-batch
    accumulation: int = 1  # micro-batches of one optimizer step
    learning_rate: float
    rank: int
    alpha: int
    dropout: float
    # "all-linear", or the names of the layers that get an adapter
    target_modules: str | tuple[str, ...] = ALL_LINEAR
    max_length: int  # no packed row has more tokens
    warmup: float  # share of all steps
    scheduler: Scheduler = "linear"
    weight_decay: float
    grad_norm_max: float = 1.0  # 0: gradients are not clipped
    seed: int
    max_steps: int = 0  # 0: all steps of the epochs
    rslora: bool = False
    dora: bool = False
    lora_plus: float = 1.0  # learning rate of the matrices B by that of the matrices A
    neftune: float = 0.0  # strength of the noise on embeddings
    eval_every_steps: int = 0  # 0: validation rows are scored at the end of each epoch only
    best_checkpoint: bool = False  # the adapter is that of the lowest validation loss
    early_stopping_patience: int = 0  # evaluations without improvement that end the run; 0: none do
    recompute: bool = False  # activations are computed again for the backward pass
    train_on_prompts: bool = False  # all tokens are labels
    packing: bool = True  # the documents of a packed row are computed together
    # rank_pattern, alpha_pattern: names of layers with values of their own
    rank_pattern: tuple[tuple[str, int], ...] = ()
    alpha_pattern: tuple[tuple[str, int], ...] = ()
    modules_to_save: tuple[str, ...] = ()  # names of layers that are trained as a whole
    sample_every_steps: int = 0  # prompts are answered every so many steps; 0: they are not
    num_generations: int = 0  # graded answers to each prompt
    temperature: float = 1.0  # sampling of these answers
    center_rewards: float = 0.0  # how strongly the rewards of a pair are held to a sum of 0
    stop_if_nothing_learnt: bool = False  # the run fails once its steps show that nothing is learnt
    # how much of the loss that keeps the experts of a mixture evenly used is added; 0: none; None:
    # as much as the base's own configuration says
    router_aux_loss: float | None = None
    optimizer: OptimizerName = "adamw"  # what turns gradients into steps

    @property
    def needs_bitsandbytes(self) -> bool:
        """True if the base is quantised, or the moments of the optimizer are."""
        return self.adaptation == "qlora" or self.optimizer == "adamw_8bit"

    @classmethod
    def from_log(cls, hyper: HyperParameters) -> "Hyper":
        """Convert the integers of the log (millionths, billionths) to floats."""
        values = cls.read_log(hyper)
        values["batch_size"] = hyper.batch_size // hyper.accumulation
        values["target_modules"] = hyper.target_modules or ALL_LINEAR
        return cls(**values)


def _from_log(recorded: HyperParameters | EvalWork, name: str) -> Any:
    """A field of the log: of the same name, or of that name and a unit. Raises AttributeError."""
    for unit, units_of_one in (("_ppm", PPM), ("_ppb", PPB)):
        if hasattr(recorded, name + unit):
            value = getattr(recorded, name + unit)
            return None if value is None else value / units_of_one
    return getattr(recorded, name)


# Fields that came after runs had fingerprints.
HYPER_ADDED: Final = added_fields(
    Hyper, first=("accumulation", "target_modules", "scheduler", "grad_norm_max")
)


class Engine(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Implementation of training steps, and its distribution of weights over ranks."""

    # "single" is one process; the others are `torch.distributed` process groups
    name: EngineName = "single"
    # "copied": each rank has all of them (DDP); "sharded": each rank has a share of every decoder
    # layer (`fully_shard`, ZeRO-3)
    weights: Weights = "copied"
    # stage of "deepspeed": 1 (optimizer states are sharded), 2 (and gradients), 3 (and weights)
    zero_stage: Literal[1, 2, 3] = 2
    cpu_offload: bool = False  # shards and optimizer states stay in the machine's memory
    tensor_parallel: int = 1  # ranks that compute each row together, each with a part of a matrix
    context_parallel: int = 1  # the same, each with a part of the row's tokens

    @property
    def ranks_of_a_row(self) -> int:
        """How many ranks compute each row together."""
        return self.tensor_parallel * self.context_parallel

    @property
    def is_sharded(self) -> bool:
        """True if ranks keep shares of the weights, and gather each layer together."""
        return self.weights == "sharded"

    def __post_init__(self) -> None:
        """Raises ValueError where DeepSpeed's stage and the weights contradict each other."""
        if self.name == "deepspeed" and (self.zero_stage == 3) != self.is_sharded:
            raise ValueError("zero_stage 3 shards weights, 1 and 2 copy them: change one of both")

    @classmethod
    def from_log(cls, hyper: HyperParameters, ranks: int) -> "Engine":
        """Return the engine for a job on this number of slots.

        Jobs with several slots that were submitted before they named an engine get "fsdp2".
        """
        name: EngineName = "fsdp2" if hyper.engine == "single" and ranks > 1 else hyper.engine
        if name == "single":
            return cls()
        # Copies stay where they compute, and are whole.
        is_sharded = hyper.shard_weights or hyper.offload or hyper.tensor_parallel > 1
        return cls(
            name=name,
            weights="sharded" if is_sharded else "copied",
            zero_stage=3 if is_sharded and name == "deepspeed" else 2,
            cpu_offload=hyper.offload,
            tensor_parallel=hyper.tensor_parallel,
            context_parallel=hyper.context_parallel,
        )


class TrainSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One attempt at training one adapter."""

    base_dir: str
    base_id: str
    base_sha256: str  # hash of the base model's files, see `tunery.platform.blobs.base_files`
    # its own tokenizer, with another chat template or end tokens; null: the base model's
    tokenizer_dir: str | None = None
    # train_shards, valid_shards: safetensors files of packed rows
    train_shards: tuple[str, ...]
    valid_shards: tuple[str, ...] = ()
    out_dir: str  # receives the checkpoints `step-NNNNNNNN/` and, at the end, `adapter/`
    # grader of answers, as JSON; null: the method grades none
    grader: str | None = None
    # checkpoints, newest first; the first that verifies is used
    resume: tuple[ResumeCandidate, ...] = ()
    hyper: Hyper
    precision: Precision = "auto"
    # threads of each rank; null: the ranks share all physical cores; a resume is equal to the bit
    # with the same number only
    threads: int | None = None
    # how many devices each process must see; null: it is not checked
    accelerators: int | None = None
    checkpoint_every_steps: int = 20
    checkpoint_every_ms: Ms = 600_000
    # share of the time that they may take; 0: they are always written
    checkpoint_share: float = 0.0
    checkpoint_each_epoch: bool = False  # one is written at the end of each epoch, at any cost
    keep_checkpoints: int = 3  # how many of the newest stay in `out_dir`
    # keeps log-probabilities of answers before training; null: it is in `out_dir`
    reference_dir: str | None = None
    start: StartingAdapter | None = None  # null for an adapter that has learnt nothing
    prompts: tuple[str, ...] = ()  # messages of a user that are answered during the training
    # keeps what trainings have shown on this machine; null: everything is shown again
    proof_dir: str | None = None
    # socket of the agent for models that score; null: the grader names none
    score_socket: str | None = None
    score_calls_max: int = CALLS_MAX  # different questions that the job may ask them
    # processes that share the micro-batches of each step; `python -m tunery.ml.train` is one of
    # them where its environment has RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and
    # TUNERY_RENDEZVOUS (`file:///…` on one node, `tcp://host:port` over several)
    ranks: int = 1
    engine: Engine = Engine()  # what runs their steps
    # names of accelerators as the driver has them, one for each rank, which works on that number
    # LOCAL_RANK of those that it sees; empty: ranks compute on processors, and a process that
    # trains alone on the accelerator that it sees
    devices: tuple[str, ...] = ()


class ColocatedSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Trainings of adapters that share one base model in one process, by their names."""

    trainings: dict[str, TrainSpec]


class VariantsSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One attempt at a training of several variants, which take turns and of which one is left."""

    # what all have in common; its `hyper` counts for none, its `resume` names checkpoints of all
    # together, and its `out_dir` receives a folder for each variant
    training: TrainSpec
    hypers: tuple[Hyper, ...]  # hyper-parameters of each variant

    @property
    def trainings(self) -> dict[str, TrainSpec]:
        """Each variant by its number, as it is alone from its beginning."""
        common = self.training
        return {
            str(number): replace(
                common, hyper=hyper, out_dir=f"{common.out_dir}/{number}", resume=()
            )
            for number, hyper in enumerate(self.hypers)
        }


class BenchmarkFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A benchmark that both sides answer."""

    name: str
    path: str
    sha256: str  # hash of the file


class ScoreSpec(ObjectiveTerms, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One comparison of a base model with an adapter."""

    base_dir: str
    base_sha256: str
    adapter_dir: str  # an adapter as PEFT saves it
    tokenizer_dir: str | None = None  # that both sides are asked with; null: the base model's
    out: str  # the results file, see `tunery.work.scores.Scores`
    items: str | None = None  # JSON lines of multiple-choice items; null for the bundled ones
    # messages of a user that both sides answer; null for the bundled ones
    prompts: tuple[str, ...] | None = None
    items_max: int | None = None  # how many of the items are asked; null: all
    prompts_max: int | None = None  # how many of the bundled prompts are answered; null: all
    valid_shards: tuple[str, ...] = ()  # packed validation rows, for the loss
    # JSON lines with `prompt_ids` (a rendered prompt) and `reference`, for exact matches
    valid_rows: str | None = None
    precision: Precision = "auto"
    threads: int | None = None
    accelerators: int | None = None  # see `TrainSpec`
    valid_rows_max: int = 32  # packed rows that are scored
    generated_max: int = 8  # rows of `valid_rows` that are answered
    new_tokens_max: int = 40  # tokens of the answer to a validation row
    answer_tokens_max: int = 40  # tokens of the answer to a prompt
    # grader, score_socket, score_calls_max: see `TrainSpec`
    grader: str | None = None
    # keeps what base models chose and answered on this machine; null: they are asked
    base_scores_dir: str | None = None
    # whether a tenant wrote the prompts: the base model's answers are then not kept
    own_prompts: bool = False
    # files as `tunery.benchmarks.task` has them, with the names of their results
    benchmarks: tuple[BenchmarkFile, ...] = ()
    benchmark_items: int = 0  # largest number of items of each
    share_ppm: int = PPM  # share of these items, counted by `tunery.gate.looks.items_at`
    # results of a smaller share, with all but the new items; null: nothing was asked yet
    scored: str | None = None
    measures: str | None = None  # `eval.measures` of the job as JSON; null: the tenant chose none
    measured_rows: int = 0  # rows of `valid_rows` that are answered for them
    measured_tokens_max: int = MEASURED_TOKENS_MAX  # tokens of the answer to one of them
    score_socket: str | None = None
    score_calls_max: int = CALLS_MAX
