"""The report's parts about benchmarks: figures and items, with texts that become no part of it."""

from msgspec.structs import replace

from services.eval.domain.verdict import summarise
from services.gateway.jobs.domain.gate_report import report_page
from services.gateway.jobs.domain.gate_responses import gate_response
from tests.unit.services.eval.domain.test_benchmarked import (
    BOTH,
    GAINED,
    LOST,
    NEITHER,
    answered,
    benchmark,
    judged,
    refusals,
    shares,
)
from tests.unit.services.gateway.jobs.domain.test_gate_report import HOSTILE
from tunery.work.scores import QuestionText


def test_a_report_has_benchmarks_refusals_and_each_item_that_differs() -> None:
    question = QuestionText(id="600", question=HOSTILE, choices=("tide", HOSTILE), answer_index=0)
    arc = replace(benchmark(*answered(600, 20, 20, 360)), questions=(question,))
    xs = refusals([BOTH] * 190 + [LOST] * 6, [NEITHER] * 240 + [GAINED] * 4)
    xs = replace(
        xs, guard=HOSTILE, refusals=tuple(replace(row, prompt=HOSTILE) for row in xs.refusals)
    )
    scores = judged(arc, xs)
    summary = summarise(scores)
    gate = gate_response(summary)
    assert [result.benchmark for result in gate.benchmarks] == ["arc", "xs"]
    assert gate.comparisons[1].benchmark == "arc"
    (safety,) = gate.safety
    assert (safety.base_refusals, safety.adapter_refusals) == (1.0, round(190 / 196, 4))
    assert safety.low < 190 / 196 < safety.high
    assert "1000 of arc show" in (gate.power or "")
    assert any("unsafe prompts are refused" in reason for reason in gate.reasons)
    page = report_page("ft:1", gate, scores)
    for text in ("Benchmarks", "Refusals: xs", "items on which the two differ (40)", "tide"):
        assert text in page
    assert "one of the two refuses (10)" in page
    assert "<script" not in page
    assert "Benchmarks" not in report_page("ft:1", gate_response(summarise(judged())), judged())


def test_shares_are_shown_as_their_mean_beside_the_likeliest_answers() -> None:
    question = QuestionText(id="0", question="Which?", choices=("tide", "sand"), answer_index=0)
    asked = shares((0.75, 0.25), *[(0.5, 0.5)] * 299)
    scores = judged(replace(asked, questions=(question,)))
    gate = gate_response(summarise(scores))
    (result,) = gate.benchmarks
    assert (result.base, result.adapter) == (0.500833, 0.499167)
    compared = gate.comparisons[1]
    assert (compared.change, compared.worse, compared.better) == (-0.001667, 1, 0)
    assert compared.items_for_two_points >= 1
    assert "for shares a bootstrap of the pairs" in (gate.rule or "")
    assert "sand (true ones: 0.25)" in report_page("ft:1", gate, scores).replace("tide", "sand")
