"""Objectives of training: from a batch of packed rows to losses, and figures to report with them.

There is one training loop; each method is an objective of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from tunery.ml.loss import Batch, document_loss, fused_loss, has_fused_head, label_loss
from tunery.ml.packed import IGNORED, PackedRows


@dataclass(frozen=True)
class Scored:
    """Losses and figures of a batch."""

    losses: Tensor  # [items]; their mean over a whole step is minimised
    # values whose mean is reported, by name
    figures: Mapping[str, Tensor] = field(default_factory=dict)


class Objective(Protocol):
    """Objective of a training method: maps a batch to its losses."""

    @property
    def needs_reference(self) -> bool:
        """True if it compares with the model from before the training."""

    def count(self, batch: Batch) -> int:
        """The items of a batch: labels, or pairs."""

    def score(self, model: Any, batch: Batch) -> Scored:
        """Losses of a batch, with gradients."""


@dataclass(frozen=True)
class Supervised:
    """Each label is to be likely, given what comes before it."""

    packing: bool  # the documents of a row are computed together
    needs_reference: ClassVar[bool] = False

    def count(self, batch: Batch) -> int:
        return int((batch["labels"] != IGNORED).sum())

    def score(self, model: Any, batch: Batch) -> Scored:
        """Nats per label."""
        if self.packing and model.training and has_fused_head(model):
            return Scored(*fused_loss(model, batch))
        scored = label_loss(model, batch) if self.packing else document_loss(model, batch)
        return Scored(scored.nll, {"mean_token_accuracy": scored.correct})


@dataclass(frozen=True)
class Means:
    """Mean loss of some rows, None without items, and means of the figures by name."""

    loss: float | None = None
    figures: Mapping[str, float] = field(default_factory=dict)


def mean_scores(
    objective: Objective, model: Any, rows: PackedRows, *, rows_max: int, device: torch.device
) -> Means:
    """Means over the first rows. Draws no random numbers."""
    total, items = 0.0, 0
    sums: dict[str, tuple[float, int]] = {}
    training = model.training
    model.eval()
    with torch.no_grad():
        for index in range(min(rows_max, len(rows))):
            batch = {name: value.to(device) for name, value in rows.batch([index]).items()}
            scored = objective.score(model, batch)
            total, items = total + float(scored.losses.double().sum()), items + len(scored.losses)
            for name, values in scored.figures.items():
                of_name, count = sums.get(name, (0.0, 0))
                sums[name] = of_name + float(values.double().sum()), count + len(values)
    model.train(training)
    if not items:
        return Means()
    means = {name: of_name / count for name, (of_name, count) in sums.items() if count}
    return Means(total / items, means)
