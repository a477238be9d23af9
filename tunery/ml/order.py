"""Order of packed rows over optimizer steps: a pure function of (seed, epoch).

So a resumed run needs a step number and nothing else, and the tokens of every step are known before
it runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate

from tunery.plan.packing import steps_of_epoch

ORDER_VERSION = 1  # part of the run's fingerprint: another order is another run
SAMPLE_SEED = 0


def row_order(seed: int, epoch: int, n_rows: int) -> list[int]:
    """A permutation of range(n_rows): rows sorted by a keyed hash, alike in every Python."""

    def rank(row: int) -> bytes:
        return blake2b(f"{ORDER_VERSION}:{seed}:{epoch}:{row}".encode(), digest_size=16).digest()

    return sorted(range(n_rows), key=rank)


def rows_of_step(seed: int, step: int, *, n_rows: int, rows_per_step: int) -> list[int]:
    """The rows that a step sees, counted from 1."""
    epoch, position = divmod(step - 1, steps_of_epoch(n_rows, rows_per_step))
    first = position * rows_per_step
    return row_order(seed, epoch, n_rows)[first : first + rows_per_step]


def sample_rows(n_rows: int, size: int) -> list[int]:
    """At most `size` of range(n_rows), in ascending order: always the same, regardless of the rows.

    Packed rows begin with the longest documents, so the first of them are no sample.
    """
    return sorted(row_order(SAMPLE_SEED, 0, n_rows)[:size])


@dataclass(frozen=True)
class StepPlan:
    """Steps and tokens of a whole run."""

    n_rows: int
    n_epochs: int
    rows_per_step: int
    steps_per_epoch: int
    cumulative: tuple[int, ...]  # tokens committed after 1, 2, … total_steps steps

    @property
    def total_steps(self) -> int:
        return len(self.cumulative)

    @property
    def tokens_total(self) -> int:
        return self.cumulative[-1]

    def tokens_after(self, step: int) -> int:
        """Tokens trained once `step` steps are committed."""
        return self.cumulative[step - 1] if step else 0

    def tokens_of(self, step: int) -> int:
        """Tokens of one step, counted from 1."""
        return self.tokens_after(step) - self.tokens_after(step - 1)


def plan_steps(
    row_tokens: Sequence[int], *, n_epochs: int, rows_per_step: int, seed: int, max_steps: int = 0
) -> StepPlan:
    """The steps of a run, at most `max_steps` where that is not 0.

    row_tokens: tokens of each packed row. An epoch's last step takes what is left over.
    """
    n_rows = len(row_tokens)
    per_step: list[int] = []
    for epoch in range(n_epochs):
        order = row_order(seed, epoch, n_rows)
        for start in range(0, n_rows, rows_per_step):
            chosen = order[start : start + rows_per_step]
            per_step.append(sum(row_tokens[row] for row in chosen))
    return StepPlan(
        n_rows=n_rows,
        n_epochs=n_epochs,
        rows_per_step=rows_per_step,
        steps_per_epoch=steps_of_epoch(n_rows, rows_per_step),
        cumulative=tuple(accumulate(per_step[:max_steps] if max_steps else per_step)),
    )
