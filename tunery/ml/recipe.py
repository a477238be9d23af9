"""Hyper-parameters nobody chose, as pure functions of the data and the model. Never imports torch.

Sources: learning rate from Tinker cookbook `hyperparam_utils.py` (5e-5 · 10 for LoRA ·
(2000 / hidden)^p); "LoRA Without Regret" (rank, all linear layers, about 1.5 × that rate for short
runs); number of epochs from OpenAI's fine-tuning data-preparation guide.
"""

from msgspec import Struct
from msgspec.structs import replace

from tunery.ml.spec import Hyper

RANK = 16
ALPHA_PER_RANK = 2
WARMUP = 0.05

EPOCHS_WANTED = 3
EPOCHS_MAX = 25
EXAMPLES_SEEN_MIN = 100
EXAMPLES_SEEN_MAX = 25_000

STEPS_WANTED = 100
BATCH_ROWS_MAX = 16

LENGTH_MIN = 512
LENGTH_MAX = 4_096

LORA_RATE = 5e-5 * 10
SHORT_RUN_FACTOR = 1.5
# Exponents of the width, calibrated upstream for these two families; others follow llama.
WIDTH_POWER = {"llama": 0.781, "qwen": 0.0775}


class Resolved(Struct, frozen=True, kw_only=True):
    """Every number fixed; fields as in `Hyper`."""

    n_epochs: int
    batch_size: int
    accumulation: int
    learning_rate: float
    rank: int
    alpha: int
    dropout: float
    target_modules: str | tuple[str, ...]
    max_length: int
    warmup: float
    scheduler: str
    weight_decay: float
    grad_norm_max: float
    seed: int


def resolve(
    hyper: Hyper, *, examples: int, rows: int, longest: int, family: str, hidden: int
) -> Resolved:
    """Fill what is null.

    `examples` and `rows`: documents and packed rows of one epoch; `longest`: tokens of the longest
    packed row; `family`: the model's architecture name; `hidden`: its width.
    """
    n_epochs = hyper.n_epochs or epochs(examples)
    batch_size = hyper.batch_size or batch_rows(rows * n_epochs)
    steps = steps_per_epoch(rows, batch_size, hyper.accumulation) * n_epochs
    rank = hyper.rank or RANK
    filled = replace(
        hyper,
        n_epochs=n_epochs,
        batch_size=batch_size,
        learning_rate=hyper.learning_rate or learning_rate(family, hidden, steps),
        rank=rank,
        alpha=hyper.alpha or ALPHA_PER_RANK * rank,
        max_length=hyper.max_length or row_length(longest),
        warmup=WARMUP if hyper.warmup is None else hyper.warmup,
    )
    return Resolved(**{name: getattr(filled, name) for name in Resolved.__struct_fields__})


def epochs(examples: int) -> int:
    """Three, more for tiny files (at least 100 examples seen), fewer for huge ones."""
    if examples * EPOCHS_WANTED < EXAMPLES_SEEN_MIN:
        return min(EPOCHS_MAX, EXAMPLES_SEEN_MIN // max(1, examples))
    if examples * EPOCHS_WANTED > EXAMPLES_SEEN_MAX:
        return max(1, EXAMPLES_SEEN_MAX // examples)
    return EPOCHS_WANTED


def batch_rows(rows_seen: int) -> int:
    """Packed rows of one step: as many as leave 100 steps. LoRA tolerates large batches less."""
    return min(BATCH_ROWS_MAX, max(1, rows_seen // STEPS_WANTED))


def row_length(longest: int) -> int:
    """Tokens of a packed row: a power of two that holds the longest document, within limits."""
    length = LENGTH_MIN
    while length < min(longest, LENGTH_MAX):
        length *= 2
    return max(length, longest)


def learning_rate(family: str, hidden: int, steps: int) -> float:
    """Rate for LoRA on a model `hidden` wide, rounded to two digits so that it reads well."""
    power = next((p for name, p in WIDTH_POWER.items() if name in family.lower()), 0.781)
    short = SHORT_RUN_FACTOR if steps < STEPS_WANTED else 1.0
    return float(f"{LORA_RATE * short * (2000 / hidden) ** power:.1e}")


def steps_per_epoch(rows: int, batch_size: int, accumulation: int) -> int:
    """Optimizer steps of one epoch; the last may be smaller."""
    micro = -(-rows // batch_size)
    return -(-micro // accumulation)
