"""Compares a model that moved with the old one, by the answers of both to the same questions."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tunery.exit_kit.plan import PlannedJob
from tunery.exit_kit.questions import HeldOutQuestion, text_of
from tunery.gate.resampling import paired_interval
from tunery.measures.declaration import JUDGE, parse_measures
from tunery.measures.scoring import BY_NAME, score_answer

SHARE: Final = 0.95  # of the old model's score that a moved model has to reach
MEASURE: Final = "token_f1"  # where the recipe names none
SHOWN: Final = {True: "shown (95 %)", False: "ruled out (95 %)", None: "not decided by so few"}


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


class MovedModel(msgspec.Struct, frozen=True):
    """What became of a model.

    scores: by each measure of the recipe; the first one decides
    judge: what a judge says of both; None: none was named
    gate: the verdict about the new model and its base, with its reasons
    reason: why nothing can be compared; None: it was
    """

    job_id: str
    old_model: str
    new_job: str | None
    new_model: str | None
    questions_are: str | None
    scores: list[PairedScores]
    pairs: list[AnswerPair]
    gate: str | None
    gate_reasons: list[str]
    reason: str | None
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
    planned: PlannedJob,
    declared: Sequence[Any],
    answered: Sequence[tuple[HeldOutQuestion, str, str]],
    job: Mapping[str, Any] | None,
    reason: str | None,
    judge: JudgedMove | None = None,
) -> MovedModel:
    """Compare two models.

    declared: `eval.measures` of the recipe; answered: questions with the old and the new answer
    job: the job here; reason: why answers are missing; judge: what a judge says of the answers
    """
    names = [name for name in declared if name != JUDGE] or [MEASURE]
    gate = (job or {}).get("gate") or {}
    return MovedModel(
        job_id=planned.job_id,
        old_model=str(planned.tuned_model),
        new_job=None if job is None else job["id"],
        new_model=None if job is None else job["fine_tuned_model"],
        questions_are=planned.questions_are,
        scores=[_scores(name, answered) for name in names] if answered else [],
        pairs=[
            AnswerPair(
                text_of(question), question.reference, old, new, BY_NAME["token_f1"](new, old)
            )
            for question, old, new in answered
        ],
        gate=gate.get("verdict"),
        gate_reasons=list(gate.get("reasons", ())),
        reason=reason if not answered else None,
        judge=judge,
    )


def _scores(name: Any, answered: Sequence[tuple[HeldOutQuestion, str, str]]) -> PairedScores:
    [measure] = parse_measures([name])
    both = []
    for question, *answers in answered:
        item = {"prompt": text_of(question), "reference": question.reference}
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
