"""Suggestions when the gate does not pass, from facts of the training and its rows. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from schemas.envelope import Reason
from schemas.gate import MeasureResult
from schemas.reasons import suggesting
from schemas.training import TrainingFacts
from schemas.units import PPM
from tunery.gate.outcomes import LEARNT_SHARE
from tunery.work.scores import HoldoutScores, MeasuredRow, Scores

APART: Final = 1.5  # validation loss by that of the training: it knows its rows by heart
STEPS_FEW: Final = 50
ROWS_FEW: Final = 50
NOTICED_SHARE: Final = 0.1  # of rows that are repeated, or whose answers are cut
CLASSES_MAX: Final = 20  # more different answers are no classes
CLASS_SHARE_MAX: Final = 0.8
LOST: Final = frozenset(
    {
        "drop_shown",
        "production_drop_shown",
        "benchmark_drop_shown",
        "benchmark_production_shown",
        "scores_not_finite",
    }
)
NOT_GAINED: Final = frozenset({"measure_below", "measure_lost", "gain_below"})


def suggest(
    scores: Scores,
    reasons: Sequence[Reason],
    measures: Sequence[MeasureResult],
    training: TrainingFacts | None,
) -> tuple[Reason, ...]:
    """Suggest changes, the likeliest cause first; none where nothing was lost and no gain missed.

    training: None: not recorded
    """
    codes = {reason.code for reason in reasons}
    if not codes & (LOST | NOT_GAINED) and all(result.verdict == "pass" for result in measures):
        return ()
    of_training = () if training is None else tuple(_training(codes, scores.holdout, training))
    return (*of_training, *_rows(scores.rows))


def _training(codes: set[str], holdout: HoldoutScores, training: TrainingFacts) -> Iterator[Reason]:
    rate = training.learning_rate_ppb
    if codes & LOST:
        yield suggesting("learning_rate_lower", learning_rate_ppb=rate, to_ppb=rate // 2)
    base, adapter = holdout.base_loss, holdout.adapter_loss
    if base is None or adapter is None:
        return
    if adapter >= LEARNT_SHARE * base and not codes & LOST:
        if training.steps < STEPS_FEW:
            yield suggesting("epochs_more", steps=training.steps, epochs=training.epochs)
        else:
            yield suggesting("learning_rate_higher", learning_rate_ppb=rate, to_ppb=rate * 2)
    last = training.final_loss_ppm
    if last is not None and training.epochs > 1 and adapter > APART * last / PPM:
        yield suggesting(
            "epochs_fewer",
            epochs=training.epochs,
            train_loss_ppm=last,
            valid_loss_ppm=round(PPM * adapter),
        )
    if training.rows < ROWS_FEW:
        yield suggesting("rows_more", rows=training.rows)


def _rows(rows: Sequence[MeasuredRow]) -> Iterator[Reason]:
    if not rows:
        return
    repeated = (len(rows) - len({row.group for row in rows})) / len(rows)
    if repeated >= NOTICED_SHARE:
        yield suggesting("duplicates_remove", share_ppm=round(PPM * repeated), rows=len(rows))
    cut = sum(row.adapter_cut for row in rows) / len(rows)
    if cut >= NOTICED_SHARE:
        yield suggesting("answers_shorten", share_ppm=round(PPM * cut), rows=len(rows))
    classes = Counter(row.reference for row in rows)
    largest = max(classes.values()) / len(rows)
    if 1 < len(classes) <= min(CLASSES_MAX, len(rows) // 2) and largest >= CLASS_SHARE_MAX:
        yield suggesting(
            "classes_balance", share_ppm=round(PPM * largest), classes=len(classes), rows=len(rows)
        )
