"""A judge's verdict: told by default, and it blocks where the policy says so."""

import pytest
from msgspec.structs import replace

from schemas.gate import GatePolicy
from services.eval.domain.verdict import summarise
from tests.unit.services.eval.samples import holdout, item, scores
from tunery.work.scores import JudgedPair, Judgement

BLOCKING = GatePolicy(blocking=("capability", "judge"))
KNOWN = scores(tuple(item(number, True, True) for number in range(200)), holdout())
LABELLED = (JudgedPair(number=1, choices=("A", "B"), label="a"),) * 30
WIN = JudgedPair(number=1, choices=("B", "A"))
LOSS = JudgedPair(number=1, choices=("A", "B"))
FIRST = JudgedPair(number=1, choices=("A", "A"))


@pytest.mark.parametrize(
    ("rows", "verdict", "code"),
    [
        ((WIN,) * 10 + (FIRST,) * 4, "pass", "judge_better"),
        ((LOSS,) * 10 + (WIN,), "block", "judge_worse"),
        ((WIN, LOSS) * 10, "inconclusive", "judge_undecided"),
        ((), "inconclusive", "judge_undecided"),
    ],
)
def test_the_judges_verdict_is_reported_and_may_block(
    rows: tuple[JudgedPair, ...], verdict: str, code: str
) -> None:
    said = Judgement(
        model="judge-1", instruction="", labels_sha256="", labelled=LABELLED, rows=rows
    )
    judged = replace(KNOWN, judgement=said)
    blocking, default = summarise(judged, policy=BLOCKING), summarise(judged)
    assert (blocking.verdict, blocking.reasons[-1].code) == (verdict, code)
    assert (default.verdict, default.reasons[-1].code) == ("pass", code)
    assert default.judge is not None
    assert default.judge.ties == rows.count(FIRST)


@pytest.mark.parametrize(
    "problem", ["judge_unqualified", "judge_unavailable", "judge_unconfigured"]
)
def test_a_judge_that_is_not_used_never_passes_nor_blocks(problem: str) -> None:
    said = Judgement(
        model="", instruction="", labels_sha256="", labelled=(), rows=(), problem=problem
    )
    summary = summarise(replace(KNOWN, judgement=said), policy=BLOCKING)
    assert (summary.verdict, summary.reasons[-1].code) == ("inconclusive", problem)
