"""What one training or scoring process is given: a JSON file, nothing else.

The process reads and writes plain files; its caller fetches and stores them. Paths are absolute or
relative to the working directory of the process; times are milliseconds.
"""

from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from schemas.training import Adaptation, HyperParameters, LossType, MethodName, added_fields
from schemas.units import PPB, PPM, Ms
from tunery.work.questions import CALLS_MAX

Precision: TypeAlias = Literal["auto", "bf16", "fp32"]
Scheduler: TypeAlias = Literal["linear", "cosine", "constant", "wsd"]

ALL_LINEAR: Final = "all-linear"  # layers that are adapted
MEASURED_TOKENS_MAX: Final = 128  # of an answer to a row that is measured
CHECKPOINTS_KEPT_MIN: Final = 2  # one may turn out to be damaged


class ResumeCandidate(Struct, frozen=True, kw_only=True):
    """A checkpoint to resume from.

    dir: its directory
    manifest_sha256: hash of its manifest as the pool accepted it
    """

    dir: str
    manifest_sha256: str


class StartingAdapter(Struct, frozen=True, kw_only=True):
    """An adapter that a training begins with.

    name: as the user knows it
    dir: its directory
    sha256: of its weights
    """

    name: str
    dir: str
    sha256: str


class Hyper(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hyper-parameters as the training loop computes with them; `from_log` makes them.

    batch_size: packed rows of one micro-batch
    accumulation: micro-batches of one optimizer step
    max_length: no packed row has more tokens
    warmup: share of all steps
    target_modules: "all-linear", or the names of the layers that get an adapter
    grad_norm_max: 0: gradients are not clipped
    max_steps: 0: all steps of the epochs
    lora_plus: learning rate of the matrices B by that of the matrices A
    neftune: strength of the noise on embeddings
    eval_every_steps: 0: validation rows are scored at the end of each epoch only
    best_checkpoint: the adapter is that of the lowest validation loss
    early_stopping_patience: evaluations without improvement that end the run; 0: none do
    recompute: activations are computed again for the backward pass
    offload: the layers of the base stay in the machine's memory and are copied when they are needed
    shard_weights: of the layers' weights each rank has a share, and is told all others when needed
    train_on_prompts: all tokens are labels
    packing: the documents of a packed row are computed together
    rank_pattern, alpha_pattern: names of layers with values of their own
    modules_to_save: names of layers that are trained as a whole
    method: what is learnt of a row
    beta: how closely preferences hold the model to its reference; 0: there is no such weight
    loss_type: how a preference becomes a loss
    adaptation: what is trained: an adapter, one on a base in four bits, or every weight
    label_smoothing: share of pairs that are taken to be the wrong way round
    gamma: by how much the preferred answer is to be ahead
    desirable, undesirable: weights of answers with the label true and false
    sample_every_steps: prompts are answered every so many steps; 0: they are not
    num_generations, max_completion_length, temperature: of answers that are graded
    center_rewards: how strongly the rewards of a pair are held to a sum of 0

    None may be "auto": `tunery.plan.hyperparameters.resolve` settled that before there was a job,
    because the estimate and the hold rest on the numbers.
    """

    n_epochs: int
    batch_size: int
    accumulation: int = 1
    learning_rate: float
    rank: int
    alpha: int
    dropout: float
    target_modules: str | tuple[str, ...] = ALL_LINEAR
    max_length: int
    warmup: float
    scheduler: Scheduler = "linear"
    weight_decay: float
    grad_norm_max: float = 1.0
    seed: int
    max_steps: int = 0
    rslora: bool = False
    dora: bool = False
    lora_plus: float = 1.0
    neftune: float = 0.0
    eval_every_steps: int = 0
    best_checkpoint: bool = False
    early_stopping_patience: int = 0
    recompute: bool = False
    offload: bool = False
    shard_weights: bool = False
    train_on_prompts: bool = False
    packing: bool = True
    rank_pattern: tuple[tuple[str, int], ...] = ()
    alpha_pattern: tuple[tuple[str, int], ...] = ()
    modules_to_save: tuple[str, ...] = ()
    method: MethodName = "supervised"
    beta: float = 0.0
    loss_type: LossType = "sigmoid"
    adaptation: Adaptation = "lora"
    label_smoothing: float = 0.0
    gamma: float = 0.0
    desirable: float = 1.0
    undesirable: float = 1.0
    sample_every_steps: int = 0
    num_generations: int = 0
    max_completion_length: int = 0
    temperature: float = 1.0
    center_rewards: float = 0.0

    @classmethod
    def from_log(cls, hyper: HyperParameters) -> "Hyper":
        """Convert the integers of the log (millionths, billionths) to floats."""
        values = {name: _from_log(hyper, name) for name in cls.__struct_fields__}
        values["batch_size"] = hyper.batch_size // hyper.accumulation
        values["target_modules"] = hyper.target_modules or ALL_LINEAR
        return cls(**values)


def _from_log(hyper: HyperParameters, name: str) -> Any:
    """A field of the log: of the same name, or of that name and a unit. Raises AttributeError."""
    for unit, units_of_one in (("_ppm", PPM), ("_ppb", PPB)):
        if hasattr(hyper, name + unit):
            return getattr(hyper, name + unit) / units_of_one
    return getattr(hyper, name)


# Fields that came after runs had fingerprints.
HYPER_ADDED: Final = added_fields(
    Hyper, first=("accumulation", "target_modules", "scheduler", "grad_norm_max")
)


class TrainSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One attempt at training one adapter.

    base_sha256: hash of the base model's files, see `tunery.runtime.blobs.base_files`
    train_shards, valid_shards: safetensors files of packed rows
    out_dir: receives the checkpoints `step-NNNNNNNN/` and, at the end, `adapter/`
    reference_dir: keeps log-probabilities of answers before training; null: it is in `out_dir`
    proof_dir: keeps what trainings have shown on this machine; null: everything is shown again
    resume: checkpoints, newest first; the first that verifies is used
    threads: of each rank; null: the ranks share all physical cores; a resume is equal to the bit
      with the same number only
    accelerators: how many devices each process must see; null: it is not checked
    checkpoint_share: of the time that they may take; 0: they are written whatever they cost
    checkpoint_each_epoch: one is written at the end of each epoch, whatever it costs
    keep_checkpoints: how many of the newest stay in `out_dir`
    start: null for an adapter that has learnt nothing
    prompts: messages of a user that are answered during the training
    grader: what says the worth of answers, as JSON; null: the method grades none
    score_socket: where the agent asks models that score; null: the grader names none
    score_calls_max: different questions that the job may ask them
    ranks: processes of this machine that share the micro-batches of each step
    devices: names of accelerators as the driver has them, one for each rank; empty: ranks compute
      on processors, and a process that trains alone on the accelerator that it sees
    """

    base_dir: str
    base_id: str
    base_sha256: str
    train_shards: tuple[str, ...]
    valid_shards: tuple[str, ...] = ()
    out_dir: str
    grader: str | None = None
    resume: tuple[ResumeCandidate, ...] = ()
    hyper: Hyper
    precision: Precision = "auto"
    threads: int | None = None
    accelerators: int | None = None
    checkpoint_every_steps: int = 20
    checkpoint_every_ms: Ms = 600_000
    checkpoint_share: float = 0.0
    checkpoint_each_epoch: bool = False
    keep_checkpoints: int = 3
    reference_dir: str | None = None
    start: StartingAdapter | None = None
    prompts: tuple[str, ...] = ()
    proof_dir: str | None = None
    score_socket: str | None = None
    score_calls_max: int = CALLS_MAX
    ranks: int = 1
    devices: tuple[str, ...] = ()


class ColocatedSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Trainings of adapters that share one base model in one process, by their names."""

    trainings: dict[str, TrainSpec]


class VariantsSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One attempt at a training of several variants, which take turns and of which one is left.

    training: what all have in common; its `hyper` counts for none, its `resume` names checkpoints
      of all together, and its `out_dir` receives a folder for each variant
    hypers: of each variant
    """

    training: TrainSpec
    hypers: tuple[Hyper, ...]

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
    """A benchmark that both sides answer. sha256: of the file."""

    name: str
    path: str
    sha256: str


class ScoreSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One comparison of a base model with an adapter.

    adapter_dir: an adapter as PEFT saves it
    out: the results file, see `tunery.work.scores.Scores`
    items: JSON lines of multiple-choice items; null for the bundled ones
    prompts: messages of a user that both sides answer; null for the bundled ones
    valid_shards: packed validation rows, for the loss
    valid_rows: JSON lines with `prompt_ids` (a rendered prompt) and `reference`, for exact matches
    valid_rows_max: packed rows that are scored
    accelerators: as in `TrainSpec`
    method, beta, loss_type, label_smoothing, gamma, desirable, undesirable, max_completion_length:
      as in `Hyper`
    grader, score_socket, score_calls_max: as in `TrainSpec`
    generated_max: rows of `valid_rows` that are answered
    new_tokens_max: tokens of the answer to a validation row
    answer_tokens_max: tokens of the answer to a prompt
    measures: `eval.measures` of the job as JSON; null: the tenant chose none
    measured_rows: rows of `valid_rows` that are answered for them
    measured_tokens_max: tokens of the answer to one of them
    adaptation: as in the training's `Hyper`: both sides are scored on the base as it was trained on
    base_scores_dir: keeps what base models chose and answered on this machine; null: they are asked
    own_prompts: whether a tenant wrote the prompts: the base model's answers are then not kept
    benchmarks: files as `tunery.benchmarks.task` has them, with the names of their results
    benchmark_items: at most so many items of each
    share_ppm: of these items, as many as `tunery.gate.looks.items_at` says
    scored: results of a smaller share, with all but the new items; null: nothing was asked yet
    """

    base_dir: str
    base_sha256: str
    adapter_dir: str
    out: str
    items: str | None = None
    prompts: tuple[str, ...] | None = None
    valid_shards: tuple[str, ...] = ()
    valid_rows: str | None = None
    precision: Precision = "auto"
    threads: int | None = None
    accelerators: int | None = None
    valid_rows_max: int = 32
    generated_max: int = 8
    new_tokens_max: int = 40
    method: MethodName = "supervised"
    beta: float = 0.0
    loss_type: LossType = "sigmoid"
    answer_tokens_max: int = 40
    adaptation: Adaptation = "lora"
    label_smoothing: float = 0.0
    gamma: float = 0.0
    desirable: float = 1.0
    undesirable: float = 1.0
    max_completion_length: int = 0
    grader: str | None = None
    base_scores_dir: str | None = None
    own_prompts: bool = False
    benchmarks: tuple[BenchmarkFile, ...] = ()
    benchmark_items: int = 0
    share_ppm: int = PPM
    scored: str | None = None
    measures: str | None = None
    measured_rows: int = 0
    measured_tokens_max: int = MEASURED_TOKENS_MAX
    score_socket: str | None = None
    score_calls_max: int = CALLS_MAX
