"""Nouns of training and evaluation: what a process is given, what it keeps, what it hands back."""

from typing import Literal, TypeAlias

from schemas.dataset import Prepared
from schemas.envelope import Part, Sha256
from schemas.units import Ms, Tokens

Device: TypeAlias = Literal["cpu", "cuda"]
# How an attempt ended. Preempted and lost are never failures.
AttemptOutcome: TypeAlias = Literal["succeeded", "preempted", "lost", "failed", "not_started"]
# Why an attempt failed; each cause has one policy in `job`. `budget`: its cap was reached.
FailureCause: TypeAlias = Literal[
    "oom", "divergence", "bad_data", "bad_node", "user", "platform", "budget"
]


class BlobFile(Part):
    """One file of a directory kept in object storage under a content-named key."""

    name: str
    blob: str
    sha256: Sha256
    bytes: int


class Checkpoint(Part):
    """It exists when its record is accepted. `captured_ms`: elapsed lease time at capture."""

    attempt: int
    step: int
    epoch_ppm: int
    tokens: Tokens
    manifest_sha256: Sha256
    files: tuple[BlobFile, ...]
    captured_ms: Ms


class HyperParameters(Part):
    """Resolved numbers, never "auto". Rates are in millionths, so that the log holds no floats."""

    n_epochs: int
    batch_size: int
    learning_rate_ppb: int  # 1e-9: 2e-4 is 200_000
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


class TrainWork(Part, tag="train"):
    """`base_path` is where nodes find the base model; what they find there must have the hash."""

    base_id: str
    base_sha256: Sha256
    base_path: str
    prepared: Prepared
    hyper: HyperParameters


class EvalWork(Part, tag="eval"):
    base_id: str
    base_sha256: Sha256
    base_path: str
    prepared: Prepared
    max_length: int
    seed: int
    adapter: tuple[BlobFile, ...]


Work: TypeAlias = TrainWork | EvalWork


class TrainResult(Part, tag="trained"):
    """The canonical adapter as uploaded by the agent, and the last step's figures."""

    adapter: tuple[BlobFile, ...]
    config_sha256: Sha256
    steps: int
    tokens: Tokens
    final_loss_ppm: int | None


class EvalResult(Part, tag="scored"):
    """Raw scores of base and adapter, item by item; the verdict is somebody else's."""

    scores: BlobFile


Result: TypeAlias = TrainResult | EvalResult


class SkippedCheckpoint(Part):
    """A checkpoint that was named in the lease and could not be used."""

    manifest_sha256: Sha256
    reason: str
