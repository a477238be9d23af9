"""The report's part about a judge: figures, what qualifies it, each row with its words."""

from msgspec.structs import replace

from services.eval.domain.verdict import summarise
from services.gateway.jobs.domain.gate_report import report_page
from services.gateway.jobs.domain.gate_responses import gate_response
from tests.unit.services.eval.samples import measured
from tests.unit.services.gateway.jobs.domain.test_gate_report import HOSTILE
from tests.unit.tunery.gate.test_judged import KNOWN, LABELLED
from tunery.work.scores import JudgedPair, Judgement, Scores


def judged(*rows: JudgedPair) -> Scores:
    judgement = Judgement(
        model="judge-1", instruction="", labels_sha256="", labelled=LABELLED, rows=rows
    )
    answered = tuple(measured(row.number, 0.0, 1.0) for row in rows)
    return replace(KNOWN, rows=answered, judgement=judgement)


def test_the_report_has_counts_bounds_and_words_and_escapes_them() -> None:
    won = JudgedPair(number=1, choices=("B", "A"), said=(HOSTILE, "x"))
    scores = judged(won, JudgedPair(number=2, choices=("A", "A")))
    gate = gate_response(summarise(scores))
    assert gate.judge is not None
    assert (gate.judge.wins, gate.judge.ties, gate.judge.inconsistent) == (1, 1, 1)
    assert (gate.judge.win_rate, gate.judge.first_position) == (1.0, 0.5)
    page = report_page("ft:1", gate, scores)
    assert "A judge of both answers" in page
    assert "50.0% of the pairs the first position won" in page
    assert "<script" not in page


def test_a_report_without_a_judge_has_no_such_part() -> None:
    assert "A judge" not in report_page("ft:1", gate_response(summarise(KNOWN)), KNOWN)
