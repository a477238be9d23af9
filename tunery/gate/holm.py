"""Several tests at once."""

from collections.abc import Sequence


def adjust(p_values: Sequence[float]) -> tuple[float, ...]:
    """P-values, adjusted so that rejecting those below alpha errs in at most alpha of all families.

    Holm (1979), "A simple sequentially rejective multiple test procedure": the k-th smallest of m
    is multiplied by m - k + 1, and none is below one that was smaller.
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [1.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return tuple(adjusted)
