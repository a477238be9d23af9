"""The gate's report as a page: figures, plots, and every item on which the two differ. Pure.

It needs no script and loads nothing; all text of tenants and of models is escaped.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any, Final

from services.gateway.jobs.domain.gate_benchmarks import benchmark_parts, chosen_texts
from services.gateway.jobs.domain.gate_judge import judge_part
from services.gateway.jobs.domain.gate_plots import bar_plot, interval_plot, scatter_plot
from services.gateway.jobs.domain.gate_responses import GateResponse, look_words
from tunery.work.scores import ItemScore, MeasuredRow, QuestionText, Scores

CHARACTERS_MAX: Final = 2_000  # of one text; the scores have all of it
STYLE: Final = """\
body{font:15px/1.45 sans-serif;margin:2em auto;max-width:62em;padding:0 1em;color:#1b1f24}
table{border-collapse:collapse;width:100%;margin:.6em 0}
th,td{border-bottom:1px solid #d0d4da;padding:.3em .5em;text-align:left;vertical-align:top}
td.n,th.n{text-align:right;white-space:nowrap}
td{white-space:pre-wrap;overflow-wrap:anywhere}
.pass{color:#1a7f37}.block{color:#b3261e}.inconclusive{color:#9a6700}
svg{font-family:sans-serif;max-width:100%}
@media print{body{margin:0}}"""


def report_page(model_id: str, gate: GateResponse, scores: Scores) -> str:
    """The whole page."""
    title = f"Gate report: {model_id}"
    return "\n".join(
        (
            "<!doctype html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
            f"<style>{STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            f'<p class="{gate.verdict}"><strong>{gate.verdict}</strong></p>',
            f"<p>General skills: {gate.skills}. Own task: {gate.own_task}.</p>",
            *_verdict(gate),
            *_comparisons(gate),
            *_categories(scores.items),
            *_measures(gate, scores),
            *judge_part(gate.judge, scores, _table),
            *benchmark_parts(gate, scores, _table),
            *_items(scores),
            *_rows(scores),
            *_answers(scores),
            _footnote(scores),
            "</body></html>",
        )
    )


def _footnote(scores: Scores) -> str:
    sides = f"Base model {_hash(scores.base_sha256)}, new model {_hash(scores.adapter_sha256)}"
    return (
        f"<p>{sides}, scored in {escape(scores.precision)}; both sides answered the same items in "
        "the same process, greedily.</p>"
    )


def _verdict(gate: GateResponse) -> Iterator[str]:
    yield "<ul>"
    yield from (f"<li>{escape(reason)}</li>" for reason in gate.reasons)
    yield "</ul>"
    for suggestion in gate.suggestions:
        yield f"<p><strong>Suggestion:</strong> {escape(suggestion)}.</p>"
    for name, text in (
        ("Own data", gate.own_data),
        ("Rule", gate.rule),
        ("Look", look_words(gate.look)),
        ("What it can show", gate.power),
        ("Advice", gate.advice),
        ("Served", gate.served),
    ):
        if text is not None:
            yield f"<p><strong>{name}:</strong> {escape(text)}</p>"


def _comparisons(gate: GateResponse) -> Iterator[str]:
    if not gate.comparisons:
        return
    yield "<h2>General questions and benchmarks</h2>"
    yield _table(
        (
            "items of",
            "against",
            "verdict",
            "items",
            "worse",
            "better",
            "p",
            "p (Holm)",
            "loss ruled out",
        ),
        (
            (
                result.benchmark or "bundled",
                result.against,
                result.verdict,
                result.items,
                result.worse,
                result.better,
                f"{result.p_value:.4f}",
                f"{result.p_adjusted:.4f}",
                f"{result.drop_ruled_out:.3f}",
            )
            for result in gate.comparisons
        ),
    )
    yield "<p>Loss of accuracy, up to what is ruled out; the red line is what is allowed.</p>"
    lines = []
    for result in gate.comparisons:
        drop = -result.change
        name = f"{result.benchmark}: " if result.benchmark else ""
        lines.append(
            (f"{name}{result.against}"[-30:], drop, drop, max(drop, result.drop_ruled_out))
        )
    yield interval_plot(lines, gate.comparisons[0].drop_allowed, "loss of accuracy")


def _categories(items: Sequence[ItemScore]) -> Iterator[str]:
    if not items:
        return
    by_category: dict[str, list[ItemScore]] = defaultdict(list)
    for item in items:
        by_category[item.category].append(item)
    yield "<h3>Right answers by category</h3>"
    yield "<p>Grey: base model; blue: new model; the number is the difference in points.</p>"
    yield bar_plot(
        [
            (
                f"{category} ({len(group)})",
                sum(item.base for item in group) / len(group),
                sum(item.adapter for item in group) / len(group),
            )
            for category, group in sorted(by_category.items())
        ],
        "right answers by category",
    )


def _measures(gate: GateResponse, scores: Scores) -> Iterator[str]:
    if not gate.measures:
        return
    yield "<h2>Your own rows</h2>"
    yield _table(
        ("measure", "verdict", "rows", "base model", "new model", "difference, from", "to"),
        (
            (
                result.measure if result.decides else f"{result.measure} (reported only)",
                result.verdict,
                result.rows,
                f"{result.base:.3f}",
                f"{result.adapter:.3f}",
                f"{result.low:+.3f}",
                f"{result.high:+.3f}",
            )
            for result in gate.measures
        ),
    )
    yield "<p>Difference of the mean scores, with bounds from a bootstrap of the pairs.</p>"
    lines = [
        (result.measure, result.low, result.adapter - result.base, result.high)
        for result in gate.measures
    ]
    yield interval_plot(lines, None, "difference of the mean scores")
    if scores.rows:
        name = escape(gate.measures[0].measure)
        yield f"<p>Each row by {name}: above the line it got better.</p>"
        points = ((row.base_scores[0], row.adapter_scores[0]) for row in scores.rows)
        yield scatter_plot(points, "scores of each row")


def _items(scores: Scores) -> Iterator[str]:
    """Items that exactly one side answered right."""
    differing = [item for item in scores.items if item.base != item.adapter]
    questions = {question.id: question for question in scores.questions}
    yield f"<h2>General questions on which the two differ ({len(differing)})</h2>"
    if differing:
        yield _table(
            ("id", "category", "question", "right answer", "base model", "new model"),
            (
                (item.id, item.category, *_question(item, questions.get(item.id)))
                for item in sorted(differing, key=lambda item: (item.adapter, item.id))
            ),
        )


def _question(item: ItemScore, question: QuestionText | None) -> tuple[str, str, str, str]:
    if question is None:  # scored before the texts were kept
        return "", "", f"answer {item.base_choice}", f"answer {item.adapter_choice}"
    return chosen_texts(item, question)


def _rows(scores: Scores) -> Iterator[str]:
    """Rows whose scores differ, those that got worse by the first measure at the top."""
    differing = [row for row in scores.rows if row.base_scores != row.adapter_scores]
    if not scores.rows:
        return
    yield f"<h2>Your rows on which the two differ ({len(differing)})</h2>"
    yield _table(
        ("row", "prompt", "reference", "base model", "new model", ", ".join(scores.measures)),
        (
            (row.row, row.prompt, row.reference, row.base, row.adapter, _scores(row))
            for row in sorted(differing, key=lambda row: row.adapter_scores[0] - row.base_scores[0])
        ),
    )


def _scores(row: MeasuredRow) -> str:
    both = zip(row.base_scores, row.adapter_scores, strict=True)
    return "\n".join(f"{base:.2f} → {adapter:.2f}" for base, adapter in both)


def _answers(scores: Scores) -> Iterator[str]:
    if scores.answers:
        yield "<h2>Answers</h2>"
        yield _table(
            ("prompt", "base model", "new model"),
            ((answer.prompt, answer.base, answer.adapter) for answer in scores.answers),
        )


def _table(names: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "\n".join(f"<tr>{''.join(map(_cell, line))}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"


def _cell(value: Any) -> str:
    if isinstance(value, int):
        return f'<td class="n">{value}</td>'
    text = str(value)
    cut = "…" if len(text) > CHARACTERS_MAX else ""
    return f"<td>{escape(text[:CHARACTERS_MAX])}{cut}</td>"


def _hash(sha256: str) -> str:
    return escape(sha256[:12])
