"""The rows with the highest losses: where to look when a loss is NaN or infinite, or jumps up."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import inf, isfinite
from typing import Any, Final

import torch

from tunery.ml.objectives import Objective, Supervised, mean_scores
from tunery.ml.packed import PackedRow, PackedRows

SUSPECTS_MAX: Final = 3
EXCERPT_CHARACTERS: Final = 60


@dataclass(frozen=True)
class Suspect:
    """A document, or a whole row where its documents belong together."""

    row: int  # number of its packed row
    loss: float  # mean of its items, computed alone
    part: PackedRow  # its tokens

    @property
    def label(self) -> str:
        """The number of the row and its loss, without any of its text."""
        return f"row {self.row} ({self.loss:.2f})"


def highest_losses(
    objective: Objective,
    model: Any,
    rows: PackedRows,
    numbers: Sequence[int],
    device: torch.device,
) -> list[Suspect]:
    """The `SUSPECTS_MAX` parts of some rows with the highest losses; NaN and infinite ones first.

    Draws no random numbers, and computes no gradients.
    """
    suspects: list[Suspect] = []
    for number in numbers:
        row = rows.rows[number]
        for part in documents_of(row) if isinstance(objective, Supervised) else [row]:
            alone = PackedRows([part])
            means = mean_scores(objective, model, alone, rows_max=1, device=device)
            if means.loss is not None:
                suspects.append(Suspect(number, means.loss, part))
    suspects.sort(key=lambda suspect: -suspect.loss if isfinite(suspect.loss) else -inf)
    return suspects[:SUSPECTS_MAX]


def documents_of(row: PackedRow) -> list[PackedRow]:
    """Each document of a row, alone."""
    ends = list(accumulate(row.lengths))
    return [
        replace(
            row,
            input_ids=row.input_ids[end - length : end],
            is_label=row.is_label[end - length : end],
            lengths=(length,),
        )
        for end, length in zip(ends, row.lengths, strict=True)
    ]


def quoted(suspects: Sequence[Suspect], tokenizer: Any) -> str:
    """Rows, losses and the beginning of each text: only for the tenant who owns the rows."""
    texts = []
    for suspect in suspects:
        begins = tokenizer.decode(suspect.part.input_ids, skip_special_tokens=True)
        texts.append(f"{suspect.label} “{' '.join(begins.split())[:EXCERPT_CHARACTERS]}”")
    return ", ".join(texts)
