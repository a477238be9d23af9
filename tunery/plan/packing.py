"""Packed rows and optimizer steps of an epoch, before a file is packed."""

from schemas.dataset import BaseTokens, PackPlan
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


def steps_of_epoch(packed_rows: int, rows_per_step: int) -> int:
    """Optimizer steps of an epoch; the last one takes the remaining rows."""
    return divide_up(packed_rows, rows_per_step)
