"""The objective of each method."""

from typing import Any

from tunery.ml.judgements import Judgements
from tunery.ml.model_scores import ModelScores
from tunery.ml.objectives import Objective, Supervised
from tunery.ml.packed import PackedRows
from tunery.ml.preferences import Likelihoods, Preferences
from tunery.ml.reinforcement import Reinforcement
from tunery.ml.rewards import Rewards
from tunery.ml.rollouts import rollouts_of
from tunery.plan.methods import ROWS_OF_METHOD
from tunery.work.exits import WorkError
from tunery.work.spec import Hyper, ScoreSpec


def objective_of(
    asked: Hyper | ScoreSpec,
    rows: PackedRows,
    *,
    packing: bool,
    grader: str | None = None,
    tokenizer: Any = None,
    scores: ModelScores | None = None,
) -> Objective:
    """Return the objective of a method for packed rows.

    grader, tokenizer, scores: for methods whose answers are graded

    Raises `WorkError` for a method that is not built, and for rows that it does not learn from.
    """
    method = asked.method
    if method not in ROWS_OF_METHOD:
        raise WorkError(
            "user", f"method {method!r} is not built", f"Use one of {', '.join(ROWS_OF_METHOD)}."
        )
    if rows.kind != ROWS_OF_METHOD[method]:
        message = f"method {method!r} learns from {ROWS_OF_METHOD[method]}, not from {rows.kind}"
        raise WorkError("bad_data", message, "Prepare the dataset again for this method.")
    match method:
        case "supervised":
            return Supervised(packing)
        case "dpo":
            return Preferences(asked.beta, asked.loss_type, packing, asked.label_smoothing)
        case "kto":
            return Judgements(asked.beta, packing, asked.desirable, asked.undesirable)
        case "reward":
            return Rewards(packing, 0.0 if isinstance(asked, ScoreSpec) else asked.center_rewards)
        case "reinforcement":
            rollouts = rollouts_of(grader, tokenizer, asked.max_completion_length, scores)
            if isinstance(asked, ScoreSpec):  # of each prompt the likeliest answer alone
                return Reinforcement(rollouts, 1, 1.0, asked.beta, 0)
            drawn = (asked.num_generations, asked.temperature, asked.beta, asked.seed)
            return Reinforcement(rollouts, *drawn)
        case _:
            return Likelihoods(method, asked.beta, packing, asked.label_smoothing, asked.gamma)
