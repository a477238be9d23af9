"""The report's parts about benchmarks: figures and items, with texts that become no part of it."""

from msgspec.structs import replace

from services.eval.domain.verdict import summarise
from services.gateway.jobs.gate_report import report_page
from services.gateway.jobs.gate_responses import gate_response
from tests.unit.services.eval.domain.test_benchmarked import (
    BOTH,
    GAINED,
    LOST,
    NEITHER,
    answered,
    benchmark,
    judged,
    refusals,
)
from tests.unit.services.gateway.jobs.test_gate_report import HOSTILE
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
