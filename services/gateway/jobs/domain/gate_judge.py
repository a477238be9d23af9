"""The part of the gate's report about a judge of both answers. Pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from services.gateway.jobs.domain.gate_plots import interval_plot
from services.gateway.jobs.domain.gate_responses import JudgeResponse
from tunery.gate.pairwise import AGREEMENT_MIN, POSITION_MAX, winner
from tunery.work.scores import Scores

Table: TypeAlias = Callable[[Sequence[str], Iterable[Sequence[Any]]], str]
WINNERS = {"a": "base model", "b": "new model", "tie": "tie"}


def judge_part(judge: JudgeResponse | None, scores: Scores, table: Table) -> Iterator[str]:
    """Counts, bounds, what qualifies the judge, and its words about each row.

    table: makes a table of escaped cells
    """
    if judge is None or scores.judgement is None:
        return
    yield "<h2>A judge of both answers</h2>"
    if judge.labelled:
        yield table(("judged by", "", ""), _qualified(judge))
    if not judge.rows:
        return
    yield table(
        ("rows", "wins", "losses", "ties", "of these inconsistent", "unreadable", "p"),
        ((*_counts(judge), f"{judge.p_value:.4f}"),),
    )
    yield (
        "<p>Each pair is judged in both orders; what wins in one order alone is a tie. In "
        f"{judge.first_position:.1%} of the pairs the first position won both times, in "
        f"{judge.second_position:.1%} the second.</p>"
    )
    if judge.win_rate is not None:
        line = ("wins among decided pairs", judge.low, judge.win_rate, judge.high)
        yield interval_plot([line], 0.5, "share of wins")
    yield _rows(scores, table)


def _qualified(judge: JudgeResponse) -> Iterator[tuple[str, str, str]]:
    yield "model", judge.model or "", ""
    yield "labelled pairs", str(judge.labelled), ""
    agreed = f"{judge.agreement:.1%}, at least {judge.agreement_low:.1%} (95 %)"
    yield "agreement with the labels", agreed, f"{AGREEMENT_MIN:.0%} are needed"
    position = f"{judge.labelled_position:.1%}"
    yield "decided by the order alone", position, f"{POSITION_MAX:.0%} are allowed"


def _counts(judge: JudgeResponse) -> tuple[int, ...]:
    decided = judge.rows, judge.wins, judge.losses
    return *decided, judge.ties, judge.inconsistent, judge.unreadable


def _rows(scores: Scores, table: Table) -> str:
    judged = () if scores.judgement is None else scores.judgement.rows
    by_number = {row.row: row for row in scores.rows}
    return table(
        ("row", "prompt", "base model", "new model", "better", "said, base model first", "second"),
        (
            (pair.number, row.prompt, row.base, row.adapter, WINNERS[winner(pair)], *pair.said)
            for pair in judged
            if (row := by_number.get(pair.number)) is not None
        ),
    )
