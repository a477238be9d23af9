"""Packed rows and optimizer steps of an epoch, before a file is packed."""

from collections.abc import Sequence

from msgspec.structs import replace

from schemas.dataset import BaseTokens, PackPlan
from schemas.submission import MixtureFile
from schemas.units import PPM, divide_up


def packed(tokens: BaseTokens, max_length: int, fraction_ppm: int) -> PackPlan:
    """Rows and tokens of an epoch: as the check counted them, else by proportion.

    fraction_ppm: share of the rows that are kept for validation
    """
    plans = {(plan.max_length, plan.validation_fraction_ppm): plan for plan in tokens.plans}
    if (known := plans.get((max_length, fraction_ppm))) is not None:
        return known
    whole = plans.get((max_length, 0))
    rows = divide_up(tokens.tokens, max_length) if whole is None else whole.packed_rows
    train_ppm = PPM - fraction_ppm
    return PackPlan(
        max_length=max_length,
        validation_fraction_ppm=fraction_ppm,
        packed_rows=divide_up(rows * train_ppm, PPM),
        tokens=divide_up(tokens.tokens * train_ppm, PPM),
    )


def mixed(tokens: BaseTokens, mixture: Sequence[MixtureFile]) -> BaseTokens:
    """Return the tokens of an epoch over a training file and further files, repeated by weight.

    A weight below 1 samples rows: their number is exact and their tokens are an expectation.
    """
    for file in mixture:
        tokens = _with(tokens, file.tokens, file.weight_ppm)
    return tokens


def _with(tokens: BaseTokens, further: BaseTokens, weight_ppm: int) -> BaseTokens:
    plans = {(plan.max_length, plan.validation_fraction_ppm): plan for plan in further.plans}
    turns = divide_up(weight_ppm, PPM)  # a packed row has a document once
    return replace(
        tokens,
        tokens=tokens.tokens + divide_up(further.tokens * weight_ppm, PPM),
        trainable_tokens=tokens.trainable_tokens
        + divide_up(further.trainable_tokens * weight_ppm, PPM),
        longest_row_tokens=max(tokens.longest_row_tokens, further.longest_row_tokens),
        plans=tuple(
            replace(
                plan,
                packed_rows=plan.packed_rows
                + max(turns, divide_up(other.packed_rows * weight_ppm, PPM)),
                tokens=plan.tokens + divide_up(other.tokens * weight_ppm, PPM),
            )
            for plan in tokens.plans
            if (other := plans.get((plan.max_length, plan.validation_fraction_ppm))) is not None
        ),
    )


def steps_of_epoch(packed_rows: int, rows_per_step: int) -> int:
    """Optimizer steps of an epoch; the last one takes the remaining rows."""
    return divide_up(packed_rows, rows_per_step)
