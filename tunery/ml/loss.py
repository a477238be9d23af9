"""Loss over labelled tokens only, and the proof that packed documents do not see each other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, TypeAlias, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from tunery.ml.attention import causal_of, document_bounds, join_rows
from tunery.ml.packed import IGNORED, PackedRow, PackedRows, documents
from tunery.work.exits import WorkError

# Documents that are compared, and tokens of each: all of them are fewer than a packed row of the
# smallest kind. Roundings of bf16 show in the mean of many tokens only.
EXACT_SAMPLE: Final = (4, 16)
BF16_SAMPLE: Final = (8, 32)
# Largest mean difference of a token's loss, packed and alone, in nats (measured: fp32 3e-6 mean;
# bf16 0.035 mean; documents that see each other, or one token of the one before: 1.1 to 4.7 mean).
FP32_MEAN_MAX = 1e-4
BF16_MEAN_MAX = 0.15
BF16_BIAS_MAX = 0.02
FUSED = "tunery_fused_head"  # of a model that `use_fused_head` has changed
MOST = "tunery_most_passes"  # of a model that `pass_together` has changed
OF_TOKENS = ("input_ids", "labels", "position_ids", "sequences")  # of a batch: [rows, tokens]

Batch: TypeAlias = dict[str, Tensor]
TokenLosses: TypeAlias = Callable[[Batch], Tensor]
Each = TypeVar("Each")


@dataclass(frozen=True)
class LabelLoss:
    """`nll` [labels] in nats, in row order; `correct` [labels]: the label was the likeliest."""

    nll: Tensor
    correct: Tensor
    # [labels], the number of each label's answer in the batch; None: it has no numbers
    sequences: Tensor | None = None


@dataclass(frozen=True)
class AnswerScores:
    """How likely each answer of a batch is."""

    logps: Tensor  # [answers], log-probability of its labels, in nats
    labels: Tensor  # [answers], how many they are
    # correct, sequences: see `LabelLoss`; prompts that are labels have the numbers after answers
    correct: Tensor
    sequences: Tensor
    mean_nll: Tensor  # [answers], loss of a mean label, of the prompt's as well


def label_loss(model: Any, batch: Batch, *, temperature: float = 1.0) -> LabelLoss:
    """Forward pass with the output head on labelled positions alone.

    The head of a small model with a large vocabulary costs more than its layers do.
    temperature: divides the logits
    """
    batch = join_rows(model, {name: batch[name] for name in OF_TOKENS if name in batch})
    targets = batch["labels"][:, 1:]
    wanted = targets != IGNORED
    columns = wanted.any(dim=0).nonzero().squeeze(1)
    logits = model(
        input_ids=batch["input_ids"],
        position_ids=batch["position_ids"],
        logits_to_keep=columns,
        use_cache=False,  # with a cache, restarting positions are ignored: documents would mix
        **document_bounds(model, batch["position_ids"]),
    ).logits
    kept = wanted[:, columns]
    # Indexing by a mask copies: with one row every column is wanted as it is.
    picked = (logits[0] if len(logits) == 1 else logits[kept]).float()
    if temperature != 1.0:
        picked = picked / temperature
    target = targets[:, columns][kept]
    nll = cross_entropy(picked, target, reduction="none")
    numbers = batch.get("sequences")
    sequences = None if numbers is None else numbers[:, 1:][:, columns][kept]
    return LabelLoss(nll, picked.detach().argmax(-1) == target, sequences)


def use_fused_head(model: Any) -> None:
    """Have a model compute the losses of labels in chunks, by TRL's kernel for accelerators.

    Logits of all labels at once are the largest tensor of a step.
    """
    from trl.trainer.utils import add_fused_lm_head  # seconds of import

    add_fused_lm_head(causal_of(model), outputs=("log_probs", "is_top1"))
    setattr(causal_of(model), FUSED, True)


def has_fused_head(model: Any) -> bool:
    """Return whether `use_fused_head` was called with this model."""
    return getattr(causal_of(model), FUSED, False)


def fused_loss(model: Any, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """Losses as of `label_loss`, with a 0 where there is no label, and its figure."""
    batch = join_rows(model, {name: batch[name] for name in OF_TOKENS if name in batch})
    is_shifted = batch["labels"].shape != batch["input_ids"].shape  # a part of a row
    scored = model(
        input_ids=batch["input_ids"],
        position_ids=batch["position_ids"],
        labels=None if is_shifted else batch["labels"],
        shift_labels=batch["labels"][:, 1:] if is_shifted else None,
        fused_lm_head=True,
        **document_bounds(model, batch["position_ids"]),
    )
    correct = scored.is_top1[scored.label_mask.bool()]
    return -scored.log_probs.reshape(-1), {"mean_token_accuracy": correct}


def pass_together(model: Any, most: Callable[[int], int]) -> None:
    """Have all ranks pass through a model equally often: they gather each layer together.

    most: the largest of the ranks' numbers; a collective
    """
    setattr(causal_of(model), MOST, most)


def passes_together(model: Any) -> bool:
    """Return whether `pass_together` was called with this model."""
    return hasattr(causal_of(model), MOST)


def filled_up(model: Any, own: Sequence[Each]) -> list[Each]:
    """Pad the inputs of a model's passes with the first one, so that all ranks pass equally often.

    A collective: all ranks call it, with at least one input each.
    """
    surplus = getattr(causal_of(model), MOST)(len(own)) - len(own) if passes_together(model) else 0
    return [*own, *[own[0]] * surplus]


def join_losses(parts: Sequence[Tensor], own: int) -> Tensor:
    """Losses of this rank's `own` passes. Other passes are in the graph, and add nothing."""
    losses = torch.cat([*parts[:own]])
    return losses + 0.0 * torch.cat([*parts[own:]]).sum() if len(parts) > own else losses


def document_loss(model: Any, batch: Batch) -> LabelLoss:
    """Compute `label_loss` of each document by itself; labels are in the order of `documents`."""
    alone = list(documents(batch)) or [batch]
    parts = [label_loss(model, each) for each in filled_up(model, alone)]
    own = parts[: len(alone)]
    sequences = [part.sequences for part in own if part.sequences is not None]
    return LabelLoss(
        join_losses([part.nll for part in parts], len(own)),
        torch.cat([part.correct for part in own]),
        torch.cat(sequences) if sequences else None,
    )


def answer_scores(model: Any, batch: Batch, *, packing: bool) -> AnswerScores:
    """Forward pass on a batch of pairs. `packing`: the documents of a row are computed together."""
    scored = label_loss(model, batch) if packing else document_loss(model, batch)
    if scored.sequences is None:
        raise ValueError("the batch does not say which answer a token belongs to")
    answers = len(batch["roles"])
    logps = torch.zeros(2 * answers, device=scored.nll.device)
    logps = logps.index_add(0, scored.sequences, -scored.nll)
    labels = torch.bincount(scored.sequences, minlength=2 * answers)
    whole = -(logps[:answers] + logps[answers:])
    return AnswerScores(
        logps[:answers],
        labels[:answers],
        scored.correct,
        scored.sequences,
        whole / (labels[:answers] + labels[answers:]).clamp(min=1),
    )


def check_packing(token_losses: TokenLosses, rows: PackedRows, *, exact: bool) -> float | None:
    """Score a few documents packed and alone; the mean absolute difference in nats per token.

    None where there are fewer than two documents: nothing was compared.

    `token_losses` maps a batch to the losses of its labels. `exact`: computed in fp32. Raises
    `WorkError("user")` when documents in one row influence each other.
    """
    documents = _documents(rows, *(EXACT_SAMPLE if exact else BF16_SAMPLE))
    if len(documents) < 2:
        return None
    packed = PackedRow(
        torch.cat([document.input_ids for document in documents]),
        torch.cat([document.is_label for document in documents]),
        tuple(len(document.input_ids) for document in documents),
    )
    together = token_losses(PackedRows([packed]).batch([0])).double()
    alone = torch.cat(
        [token_losses(PackedRows([document]).batch([0])) for document in documents]
    ).double()
    difference = together - alone
    mean, bias = float(difference.abs().mean()), float(difference.mean().abs())
    if not isfinite(mean):
        raise WorkError(
            "platform",
            "the base model's loss is not a number on the first documents",
            "Fetch the base model again.",
        )
    fine = mean < FP32_MEAN_MAX if exact else mean < BF16_MEAN_MAX and bias < BF16_BIAS_MAX
    if not fine:
        raise WorkError(
            "user",
            f"packed documents see each other in this base: {mean:.4f} nats per token on average",
            "Its attention ignores where a document begins. Set training.packing to false: each "
            "document is then computed by itself.",
        )
    return mean


def prove_packing(
    model: Any, rows: PackedRows, device: torch.device, *, exact: bool
) -> float | None:
    """`check_packing` of a model without dropout; raises as it does.

    exact: it computes in fp32; its weights do not say so, as ranks keep theirs in fp32 with bf16
    """
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return check_packing(
                lambda batch: label_loss(
                    model, {name: value.to(device) for name, value in batch.items()}
                ).nll.cpu(),
                rows,
                exact=exact,
            )
    finally:
        model.train(training)


def _documents(rows: PackedRows, count: int, tokens_max: int) -> list[PackedRow]:
    """The beginnings of a few documents, every token but the first a label.

    Short ones, because every label has its logits, and of long documents as well.
    """
    documents: list[PackedRow] = []
    for row in rows.rows:
        start = 0
        for length in row.lengths:
            ids = row.input_ids[start : start + min(length, tokens_max)]
            start += length
            if length < 2:
                continue
            is_label = torch.ones(len(ids), dtype=torch.bool)
            is_label[0] = False
            documents.append(PackedRow(ids, is_label, (len(ids),)))
            if len(documents) == count:
                return documents
    return documents
