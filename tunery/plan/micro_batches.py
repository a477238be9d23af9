"""How a step's rows are divided into micro-batches: less memory for the same optimizer step."""

from typing import Final

from msgspec.structs import replace

from schemas.training import HyperParameters
from schemas.units import divide_up

RANKS_MAX: Final = 64  # processes that share a step


def rows_at_once(hyper: HyperParameters) -> int:
    """Packed rows of one micro-batch."""
    return hyper.batch_size // hyper.accumulation


def with_rows_at_once(hyper: HyperParameters, rows: int) -> HyperParameters:
    """Return the same step in equal micro-batches of at most `rows` rows."""
    size = max(size for size in range(1, rows + 1) if hyper.batch_size % size == 0)
    return replace(hyper, accumulation=hyper.batch_size // size)


def with_at_most(hyper: HyperParameters, rows: int) -> HyperParameters:
    """Return the same step in micro-batches of at most `rows` rows, unchanged if they have no
    more.
    """
    return hyper if rows_at_once(hyper) <= rows else with_rows_at_once(hyper, rows)


def with_smaller_micro_batches(hyper: HyperParameters) -> HyperParameters | None:
    """Return the same step in micro-batches of at most half as many rows; None: they have one
    row.
    """
    rows = rows_at_once(hyper)
    return None if rows == 1 else with_rows_at_once(hyper, rows // 2)


def shared_among(hyper: HyperParameters, ranks: int) -> HyperParameters | None:
    """Return the step in the largest micro-batches that split its rows evenly over the ranks, or
    over groups of them that compute rows together.

    They are no larger than they are now. None: a step has fewer rows than there are groups.
    """
    ranks //= hyper.tensor_parallel * hyper.context_parallel
    rows, most = hyper.batch_size, rows_at_once(hyper)
    if rows < ranks:
        return None
    share = divide_up(rows, ranks)
    sizes = [size for size in range(1, most + 1) if rows % size == 0 and rows // size >= ranks]
    return with_rows_at_once(
        hyper, max(size for size in sizes if size * divide_up(rows // size, ranks) == share)
    )


def halvings(hyper: HyperParameters) -> int:
    """How often micro-batches can be made smaller until they have one row."""
    smaller = with_smaller_micro_batches(hyper)
    return 0 if smaller is None else 1 + halvings(smaller)
