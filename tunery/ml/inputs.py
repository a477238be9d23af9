"""Spec files of training and scoring processes, read and checked. Never imports torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from tunery.plan.hyperparameters import RANGES
from tunery.plan.knobs import ADAPTER_KNOBS, Number
from tunery.plan.methods import SHARED_BY_RANKS
from tunery.plan.micro_batches import RANKS_MAX
from tunery.work.codec import decode_score_spec, decode_train_spec
from tunery.work.exits import WorkError
from tunery.work.spec import CHECKPOINTS_KEPT_MIN, ScoreSpec, TrainSpec

# smallest and largest value accepted, both included, by field of `Hyper`
HYPER_RANGES: Final[Mapping[str, tuple[Number, Number]]] = {
    **{name: RANGES[name] for name in ("n_epochs", "batch_size", "learning_rate", "rank", "alpha")},
    **{name: RANGES[name] for name in ("dropout", "max_length", "weight_decay")},
    "warmup": RANGES["warmup_ratio"],
    **{name: RANGES[name] for name in ("accumulation", "max_steps", "eval_every_steps")},
    "sample_every_steps": RANGES["sample_every_steps"],
    "early_stopping_patience": RANGES["early_stopping_patience"],
    "grad_norm_max": RANGES["max_grad_norm"],
    "lora_plus": RANGES["lora_plus_ratio"],
    "neftune": RANGES["neftune_alpha"],
    # no knob sets it
    "seed": (0, 2**32 - 1),
}


def read_train_spec(path: Path) -> TrainSpec:
    """The checked spec in a JSON file.

    Raises WorkError("user") naming the field and the range accepted.
    """
    try:
        spec = decode_train_spec(path.read_bytes())
    except (OSError, msgspec.MsgspecError) as error:
        raise WorkError("user", f"{path}: {error}", "Correct the training spec.") from error
    for name, (least, most) in HYPER_RANGES.items():
        if spec.hyper.adaptation == "full" and name in ADAPTER_KNOBS:
            continue
        value = getattr(spec.hyper, name)
        if not least <= value <= most:
            advice = f"Choose hyper.{name} between {least} and {most}."
            raise WorkError("user", f"{path}: hyper.{name} is {value}", advice)
    if not spec.train_shards:
        raise WorkError("user", f"{path}: train_shards is empty", "Name at least one shard.")
    for name, least in (
        ("checkpoint_every_steps", 1),
        ("checkpoint_every_ms", 1),
        ("checkpoint_share", 0),
        ("keep_checkpoints", CHECKPOINTS_KEPT_MIN),
    ):
        if getattr(spec, name) < least:
            advice = f"Set it to {least} or more."
            raise WorkError("user", f"{path}: {name} is below {least}", advice)
    _check_ranks(path, spec)
    return spec


def _check_ranks(path: Path, spec: TrainSpec) -> None:
    """Raises WorkError("user") for ranks that would have nothing to do, or are not built."""
    if spec.devices and len({*spec.devices}) != spec.ranks:
        message = f"{path}: ranks is {spec.ranks}, and devices names {len({*spec.devices})}"
        raise WorkError("user", message, "Name one device for each rank, or none.")
    if spec.ranks == 1:
        return
    least, most = 1, min(RANKS_MAX, spec.hyper.accumulation)
    if not least <= spec.ranks <= most:
        message = f"{path}: ranks is {spec.ranks}, and a step has {most} micro-batches to share"
        advice = f"Set ranks between {least} and {most}, or divide a step into more micro-batches."
        raise WorkError("user", message, advice)
    if spec.hyper.method not in SHARED_BY_RANKS:
        message = f"{path}: ranks is {spec.ranks}, and method is {spec.hyper.method!r}"
        advice = f"Use one rank, or one of the methods {', '.join(sorted(SHARED_BY_RANKS))}."
        raise WorkError("user", message, advice)


def read_score_spec(path: Path) -> ScoreSpec:
    """The spec in a JSON file. Raises WorkError("user") naming the field that is wrong."""
    try:
        return decode_score_spec(path.read_bytes())
    except (OSError, msgspec.MsgspecError) as error:
        raise WorkError("user", f"{path}: {error}", "Correct the scoring spec.") from error
