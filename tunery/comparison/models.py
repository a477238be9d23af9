"""Compares a model that moved with the old one, by the answers of both to the same questions."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from schemas.records import build_from
from tunery.gate.resampling import paired_interval
from tunery.measures.declaration import JUDGE, parse_measures
from tunery.measures.scoring import score_answer, token_f1

ANSWER_TOKENS_MAX: Final = 512  # of an answer of either model
SHARE: Final = 0.95  # of the old model's score that a moved model has to reach
MEASURE: Final = "token_f1"  # where the recipe names none
SHOWN: Final = {True: "shown (95 %)", False: "ruled out (95 %)", None: "not decided by so few"}


class HeldOutQuestion(msgspec.Struct, frozen=True):
    """A row without its answer. reference: that answer"""

    id: str
    messages: list[dict[str, Any]]
    tools: list[Any] | None
    reference: str

    @property
    def text(self) -> str:
        """Text of its last message."""
        return str(self.messages[-1].get("content") or "")


class PairedScores(msgspec.Struct, frozen=True):
    """Mean scores of the old and the new model by one measure, against the rows' own answers.

    certainty: whether the new model reaches SHARE of the old one's score: shown, ruled out or not
        decided, by a bootstrap of the questions
    """

    measure: str
    old: float
    new: float
    certainty: str

    @property
    def reaches(self) -> bool:
        return self.new >= SHARE * self.old


class AnswerPair(msgspec.Struct, frozen=True):
    """Both answers to a question. agreement: F1 of their common words"""

    question: str
    reference: str
    old: str
    new: str
    agreement: float


class JudgedMove(msgspec.Struct, frozen=True):
    """Verdict of a judge on both models' answers.

    verdict: better, worse or no difference shown (exact sign test), of the new model; or unused
    """

    model: str
    verdict: str
    reasons: list[str]
    wins: int = 0
    losses: int = 0
    ties: int = 0


class Move(msgspec.Struct, frozen=True):
    """The job of an old model, and the one here that replaces it.

    questions_are: where the questions come from
    gate: the verdict about the new model and its base, with its reasons
    reason: why nothing can be compared; None: it was
    """

    job_id: str
    old_model: str
    new_job: str | None
    new_model: str | None
    questions_are: str | None
    gate: str | None
    gate_reasons: list[str]
    reason: str | None


class MovedModel(Move, frozen=True):
    """A move, and how both models answered.

    scores: by each measure of the recipe; the first one decides
    judge: what a judge says of both; None: none was named
    """

    scores: list[PairedScores]
    pairs: list[AnswerPair]
    judge: JudgedMove | None = None

    @property
    def reaches(self) -> bool:
        """True if the first measure reaches SHARE, and no judge shows the new answers as worse."""
        is_worse = self.judge is not None and self.judge.verdict == "worse"
        return bool(self.scores) and self.scores[0].reaches and not is_worse

    @property
    def agreement(self) -> float | None:
        """Mean agreement of both models' answers; None without any."""
        if not self.pairs:
            return None
        return sum(pair.agreement for pair in self.pairs) / len(self.pairs)


def compared(
    move: Move,
    declared: Sequence[Any],
    answered: Sequence[tuple[HeldOutQuestion, str, str]],
    judge: JudgedMove | None = None,
) -> MovedModel:
    """Compare two models.

    declared: `eval.measures` of the recipe; answered: questions with the old and the new answer
    judge: what a judge says of the answers
    """
    names = [name for name in declared if name != JUDGE] or [MEASURE]
    return build_from(
        MovedModel,
        move,
        reason=None if answered else move.reason,
        scores=[_scores(name, answered) for name in names] if answered else [],
        pairs=[
            AnswerPair(question.text, question.reference, old, new, token_f1(new, old))
            for question, old, new in answered
        ],
        judge=judge,
    )


def _scores(name: Any, answered: Sequence[tuple[HeldOutQuestion, str, str]]) -> PairedScores:
    [measure] = parse_measures([name])
    both = []
    for question, *answers in answered:
        item = {"prompt": question.text, "reference": question.reference}
        both.append([score_answer(measure, item, answer) for answer in answers])
    interval = paired_interval(
        [new - SHARE * old for old, new in both], [question.id for question, *_ in answered]
    )
    certain = True if interval.low >= 0 else False if interval.high < 0 else None
    return PairedScores(
        measure=name if isinstance(name, str) else str(name.get("name") or measure.kind),
        old=sum(old for old, _ in both) / len(both),
        new=sum(new for _, new in both) / len(both),
        certainty=SHOWN[certain],
    )
