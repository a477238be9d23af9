"""Evaluation of a reward model: on the pairs of the validation rows, and nothing else.

A reward model answers no questions and writes no texts. Each pair is an item: whether the preferred
answer is the better one, by the rewards, and for the base model, which has none, by the likelihood
of the answer's mean token.
"""

import hashlib
from collections.abc import Callable
from math import isfinite, log
from pathlib import Path
from typing import Final

import torch
from peft import PeftModel
from torch import Tensor
from torch.nn.functional import logsigmoid

from tunery.ml import device
from tunery.ml.adapters import WEIGHTS
from tunery.ml.events import EventWriter
from tunery.ml.loss import answer_scores, prove_packing
from tunery.ml.model import LoadBase, load_base
from tunery.ml.packed import PackedRow, PackedRows, read_rows
from tunery.ml.rewards import answer_rewards
from tunery.ml.scoring import load_pair, write_scores
from tunery.platform.blobs.files import file_sha256
from tunery.work.events import Preempted, ScoringProgressed, ScoringStarted
from tunery.work.exits import ExitCode, WorkError
from tunery.work.scores import NO_CHOICE, PAIRS, HoldoutScores, ItemScore, Scores
from tunery.work.spec import ScoreSpec

TOKENS_MAX: Final = 40_000  # of the rows that are scored: about as long as the bundled items take
NO_REWARD_LOSS: Final = log(2)  # of a model to which all answers are worth the same
STAGE: Final = "pairs"


def score_pairs(
    spec: ScoreSpec,
    events: EventWriter,
    must_stop: Callable[[], bool],
    load: LoadBase = load_base,
) -> ExitCode:
    """Write the results file. Raises WorkError for inputs that cannot be scored.

    load: gives the base of an adapter
    """
    device.make_deterministic(spec.threads)
    model = load_pair(spec, load, rewards=True).trained
    rows = _rows(spec, model.config.get_text_config().vocab_size)
    packing = rows is not None and _can_pack(model, rows)
    events.emit(ScoringStarted(items=0 if rows is None else rows.n_sequences // 2, prompts=0))
    items: list[ItemScore] = []
    losses: list[float] = []
    for number, row in enumerate(() if rows is None else rows.rows):
        if must_stop():
            events.emit(Preempted())
            return ExitCode.PREEMPTED
        of_row, of_losses = _score_row(model, row, packing=packing)
        items += of_row
        losses += of_losses
        total = 0 if rows is None else len(rows)
        events.emit(ScoringProgressed(stage=STAGE, done=number + 1, total=total))
    write_scores(spec, _scores(spec, model, rows, items, losses), events)
    return ExitCode.FINISHED


def _rows(spec: ScoreSpec, vocabulary: int) -> PackedRows | None:
    """A sample of the pairs that validate; None where there are none."""
    if not spec.valid_shards:
        return None
    rows = read_rows(spec.valid_shards, vocabulary=vocabulary)
    sample = rows.sample(max(spec.valid_rows_max, TOKENS_MAX // max(rows.row_tokens)))
    return sample if sample.n_labels else None


def _can_pack(model: PeftModel, rows: PackedRows) -> bool:
    """Return whether packed documents do not affect each other in the base model."""
    try:
        with model.disable_adapter():
            prove_packing(model, rows, model.device, exact=model.dtype == torch.float32)
    except WorkError:
        return False
    return True


def _score_row(
    model: PeftModel, row: PackedRow, *, packing: bool
) -> tuple[list[ItemScore], list[float]]:
    """The pairs of a packed row as items, and the loss of each."""
    batch = {name: value.to(model.device) for name, value in PackedRows([row]).batch([0]).items()}
    with torch.no_grad():
        rewards = answer_rewards(model, batch, packing=packing)
        with model.disable_adapter():
            answers = answer_scores(model, batch, packing=packing)
            likelihoods = answers.logps / answers.labels.clamp(min=1)
    losses = -logsigmoid(rewards[0::2] - rewards[1::2])
    texts = torch.split(row.input_ids, list(row.lengths))
    items = [
        _item(texts[at], texts[at + 1], likelihoods[at : at + 2], rewards[at : at + 2])
        for at in range(0, len(texts), 2)
    ]
    return items, [float(loss) for loss in losses]


def _item(chosen: Tensor, rejected: Tensor, base: Tensor, adapter: Tensor) -> ItemScore:
    """A pair by the hash of its tokens. The choices: 0 is the preferred answer."""
    content = chosen.numpy().tobytes() + b"\0" + rejected.numpy().tobytes()
    choices = [_choice(side) for side in (base, adapter)]
    return ItemScore(
        id=f"pair-{hashlib.sha256(content).hexdigest()[:16]}",
        category=PAIRS,
        base=choices[0] == 0,
        adapter=choices[1] == 0,
        base_choice=choices[0],
        adapter_choice=choices[1],
    )


def _choice(of_pair: Tensor) -> int:
    """The better answer; of two that are worth the same the other one, which is wrong."""
    chosen, rejected = (float(value) for value in of_pair)
    if not (isfinite(chosen) and isfinite(rejected)):
        return NO_CHOICE
    return 0 if chosen > rejected else 1


def _scores(
    spec: ScoreSpec,
    model: PeftModel,
    rows: PackedRows | None,
    items: list[ItemScore],
    losses: list[float],
) -> Scores:
    unsure = {
        "base": any(item.base_choice == NO_CHOICE for item in items),
        "adapter": any(item.adapter_choice == NO_CHOICE for item in items),
    }
    mean = sum(losses) / len(losses) if losses else None
    return Scores(
        base_sha256=spec.base_sha256,
        adapter_sha256=file_sha256(Path(spec.adapter_dir) / WEIGHTS),
        precision=str(next(model.parameters()).dtype).removeprefix("torch."),
        items=tuple(items),
        holdout=HoldoutScores(
            rows=0 if rows is None else rows.n_sequences,
            tokens=0 if rows is None else rows.n_labels,
            base_loss=NO_REWARD_LOSS if losses else None,
            adapter_loss=mean if mean is not None and isfinite(mean) else None,
            base_perplexity=None,
            adapter_perplexity=None,
            generated=0,
            base_exact=0,
            adapter_exact=0,
        ),
        answers=(),
        not_finite=tuple(name for name, is_unsure in unsure.items() if is_unsure),
    )
