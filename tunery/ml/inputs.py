"""Spec files of training and scoring processes, read and checked. Never imports torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from tunery.plan.hyperparameters import RANGES
from tunery.plan.knobs import ADAPTER_KNOBS, Number
from tunery.plan.micro_batches import RANKS_MAX
from tunery.work.codec import decode_score_spec, decode_training
from tunery.work.exits import WorkError
from tunery.work.session import SessionSpec
from tunery.work.spec import CHECKPOINTS_KEPT_MIN, ColocatedSpec, ScoreSpec, TrainSpec, VariantsSpec

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

COLOCATED_MAX: Final = 16  # trainings of one process
# What these must have in common: they share the base, its place, and the threads of the process.
ALIKE: Final = (
    *("base_dir", "base_sha256", "tokenizer_dir", "precision", "threads"),
    *("accelerators", "devices"),
)


def read_training(path: Path) -> TrainSpec | ColocatedSpec | VariantsSpec | SessionSpec:
    """The checked spec in a JSON file: of one training, several, variants of one, or a session.

    Raises WorkError("user") naming the field and the range accepted.
    """
    try:
        spec = decode_training(path.read_bytes())
    except (OSError, msgspec.MsgspecError) as error:
        raise WorkError("user", f"{path}: {error}", "Correct the training spec.") from error
    if isinstance(spec, TrainSpec):
        _check(str(path), spec)
        return spec
    if isinstance(spec, SessionSpec):
        _check(str(path), spec.training, has_rows=False)
        return spec
    for name, each in spec.trainings.items():
        _check(f"{path}: trainings.{name}", each)
    _check_together(path, spec.trainings)
    return spec


def _check(where: str, spec: TrainSpec, *, has_rows: bool = True) -> None:
    """Raises WorkError("user") naming the field and the range accepted."""
    for name, (least, most) in HYPER_RANGES.items():
        if spec.hyper.adaptation == "full" and name in ADAPTER_KNOBS:
            continue
        value = getattr(spec.hyper, name)
        if not least <= value <= most:
            advice = f"Choose hyper.{name} between {least} and {most}."
            raise WorkError("user", f"{where}: hyper.{name} is {value}", advice)
    if has_rows and not spec.train_shards:
        raise WorkError("user", f"{where}: train_shards is empty", "Name at least one shard.")
    for name, least in (
        ("checkpoint_every_steps", 1),
        ("checkpoint_every_ms", 1),
        ("checkpoint_share", 0),
        ("keep_checkpoints", CHECKPOINTS_KEPT_MIN),
    ):
        if getattr(spec, name) < least:
            advice = f"Set it to {least} or more."
            raise WorkError("user", f"{where}: {name} is below {least}", advice)
    _check_ranks(where, spec)


def _check_together(path: Path, specs: Mapping[str, TrainSpec]) -> None:
    """Raises WorkError("user") for trainings that cannot share a base model and a process."""
    if not 1 <= len(specs) <= COLOCATED_MAX:
        message = f"{path}: trainings has {len(specs)} entries"
        raise WorkError("user", message, f"Name 1 to {COLOCATED_MAX} trainings.")
    first_name, first = next(iter(specs.items()))
    folders: dict[str, str] = {}
    for name, spec in specs.items():
        where = f"{path}: trainings.{name}"
        if spec.hyper.adaptation != "lora" or spec.ranks > 1:
            message = (
                f"{where}: its adaptation is {spec.hyper.adaptation!r}, its ranks {spec.ranks}"
            )
            advice = 'Trainings that share a base have adaptation "lora" and one rank.'
            raise WorkError("user", message, advice)
        if spec.engine.name != "single":  # they share one base in one process
            message = f"{where}: its engine is {spec.engine.name!r}"
            raise WorkError("user", message, 'Set it to "single", or train it by itself.')
        for field in ALIKE:
            if getattr(spec, field) != getattr(first, field):
                message = f"{where}: {field} is not that of trainings.{first_name}"
                advice = f"Give all trainings of a process the same {field}."
                raise WorkError("user", message, advice)
        other = folders.setdefault(str(Path(spec.out_dir).resolve()), name)
        if other != name:
            message = f"{where}: out_dir is that of trainings.{other}"
            raise WorkError("user", message, "Give each training a folder of its own.")


def _check_ranks(where: str, spec: TrainSpec) -> None:
    """Raises WorkError("user") for ranks that would have nothing to do, or are not built."""
    if spec.devices and len({*spec.devices}) != spec.ranks:
        message = f"{where}: ranks is {spec.ranks}, and devices names {len({*spec.devices})}"
        raise WorkError("user", message, "Name one device for each rank, or none.")
    if spec.ranks == 1:
        return
    least, most = 1, min(RANKS_MAX, spec.hyper.accumulation)
    if not least <= spec.ranks <= most:
        message = f"{where}: ranks is {spec.ranks}, and a step has {most} micro-batches to share"
        advice = f"Set ranks between {least} and {most}, or divide a step into more micro-batches."
        raise WorkError("user", message, advice)
    if spec.score_socket is not None:
        message = f"{where}: ranks is {spec.ranks}, and models are asked for scores (score_socket)"
        advice = "Use one rank, or a grader that asks no model."
        raise WorkError("user", message, advice)


def read_score_spec(path: Path) -> ScoreSpec:
    """The spec in a JSON file. Raises WorkError("user") naming the field that is wrong."""
    try:
        return decode_score_spec(path.read_bytes())
    except (OSError, msgspec.MsgspecError) as error:
        raise WorkError("user", f"{path}: {error}", "Correct the scoring spec.") from error
