"""What one training process is told: a JSON file, nothing else.

The process reads and writes plain files. Where they come from and go to is its caller's matter.
Paths are absolute or relative to the caller's working directory; times are milliseconds.
"""

from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

Precision: TypeAlias = Literal["auto", "bf16", "fp32"]
Scheduler: TypeAlias = Literal["linear", "cosine", "constant"]
Cause: TypeAlias = Literal["oom", "divergence", "bad_data", "user", "platform"]

CHECKPOINTS_KEPT_MIN = 2  # one may turn out to be damaged


class Refused(Exception):
    """Work that cannot go on: `cause` decides the policy, `advice` tells a person what to do."""

    def __init__(self, cause: Cause, message: str, advice: str) -> None:
        super().__init__(message)
        self.cause: Cause = cause
        self.message = message
        self.advice = advice


class Candidate(Struct, frozen=True, kw_only=True):
    """A checkpoint directory to resume from, with the hash of its manifest as it was accepted."""

    dir: str
    manifest_sha256: str


class Hyper(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hyper-parameters, every one a number: what "auto" means was settled before there was a job
    (`tunery.plan.hyperparameters.resolve`), because the estimate and the hold rest on it.

    `batch_size` counts packed rows of one micro-batch, `accumulation` micro-batches of one
    optimizer step. `max_length`: tokens no packed row may pass. `warmup` is a share of all steps.
    `target_modules`: "all-linear" or names.
    """

    n_epochs: int
    batch_size: int
    accumulation: int = 1
    learning_rate: float
    rank: int
    alpha: int
    dropout: float
    target_modules: str | tuple[str, ...] = "all-linear"
    max_length: int
    warmup: float
    scheduler: Scheduler = "linear"
    weight_decay: float
    grad_norm_max: float = 1.0
    seed: int


class TrainSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One attempt at training one adapter.

    `resume` names checkpoints newest first; the first that verifies is used. `out_dir` receives
    `step-NNNNNNNN/` checkpoints and, at the end, `adapter/`. `threads`: null means all physical
    cores; a resume is bit-identical only with the same number.
    """

    base_dir: str
    base_id: str
    base_sha256: str
    train_shards: tuple[str, ...]
    valid_shards: tuple[str, ...] = ()
    out_dir: str
    resume: tuple[Candidate, ...] = ()
    hyper: Hyper
    precision: Precision = "auto"
    threads: int | None = None
    checkpoint_every_steps: int = 20
    checkpoint_every_ms: int = 600_000
    keep_checkpoints: int = 3


class ScoreSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one scoring process is told.

    `items`: JSON lines of `choices.Item`. `valid_rows`: JSON lines with `prompt_ids` (a rendered
    prompt) and `reference`. `prompts`: users' messages both sides answer. `out`: the results file.
    """

    base_dir: str
    base_sha256: str
    adapter_dir: str
    out: str
    items: str | None = None
    valid_shards: tuple[str, ...] = ()
    valid_rows: str | None = None
    prompts: tuple[str, ...] = ()
    precision: Precision = "auto"
    threads: int | None = None
    valid_rows_max: int = 32
    generated_max: int = 16
    new_tokens_max: int = 48


# name: smallest and largest value accepted, both included
LIMITS: dict[str, tuple[float, float]] = {
    "n_epochs": (1, 100),
    "batch_size": (1, 256),
    "accumulation": (1, 256),
    "learning_rate": (1e-7, 1e-1),
    "rank": (1, 256),
    "alpha": (1, 1024),
    "dropout": (0.0, 0.9),
    "max_length": (16, 131_072),
    "warmup": (0.0, 0.9),
    "weight_decay": (0.0, 1.0),
    "grad_norm_max": (1e-6, 1e6),
    "seed": (0, 2**32 - 1),
}


def read_spec(path: Path) -> TrainSpec:
    """The checked spec in a JSON file.

    Raises `Refused("user")` naming the field and the range accepted.
    """
    try:
        spec = msgspec.json.decode(path.read_bytes(), type=TrainSpec)
    except (OSError, msgspec.MsgspecError) as error:
        raise Refused("user", f"{path}: {error}", "Correct the training spec.") from error
    for name, (least, most) in LIMITS.items():
        value = getattr(spec.hyper, name)
        if not least <= value <= most:
            advice = f"Choose hyper.{name} between {least} and {most}."
            raise Refused("user", f"{path}: hyper.{name} is {value}", advice)
    if not spec.train_shards:
        raise Refused("user", f"{path}: train_shards is empty", "Name at least one shard.")
    for name, least in (
        ("checkpoint_every_steps", 1),
        ("checkpoint_every_ms", 1),
        ("keep_checkpoints", CHECKPOINTS_KEPT_MIN),
    ):
        if getattr(spec, name) < least:
            raise Refused("user", f"{path}: {name} is below {least}", f"Set it to {least} or more.")
    return spec
