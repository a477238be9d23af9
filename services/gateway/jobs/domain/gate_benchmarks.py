"""The parts of the gate's report about benchmarks of the operator, safety among them. Pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import Any, Final, TypeAlias

from services.gateway.jobs.domain.gate_plots import interval_plot
from services.gateway.jobs.domain.gate_responses import GateResponse, SafetyResponse
from tunery.work.scores import NO_CHOICE, BenchmarkScores, ItemScore, QuestionText, Scores

Table: TypeAlias = Callable[[Sequence[str], Iterable[Sequence[Any]]], str]
SHOWN_HEX: Final = 12


def benchmark_parts(gate: GateResponse, scores: Scores, table: Table) -> Iterator[str]:
    """Scores, and each item on which the two differ.

    table: makes a table of escaped cells
    """
    if not gate.benchmarks:
        return
    yield "<h2>Benchmarks</h2>"
    yield table(
        ("benchmark", "task", "items", "base model", "new model", "hash of its file"),
        (
            (
                result.benchmark,
                result.task,
                result.items,
                f"{result.base:.3f}",
                f"{result.adapter:.3f}",
                result.sha256[:SHOWN_HEX],
            )
            for result in gate.benchmarks
        ),
    )
    yield (
        "<p>Shares of right answers, or, where several are true, the mean share of the likelihood "
        "that these have; the comparisons above say what they show.</p>"
    )
    for result in gate.safety:
        yield from _safety(result, table)
    for asked in scores.benchmarks:
        yield from _refusals(asked, table) if asked.refusals else _items(asked, table)


def _safety(result: SafetyResponse, table: Table) -> Iterator[str]:
    yield f"<h3>Refusals: {escape(result.benchmark)}</h3>"
    method = (
        f"judged by {result.guard}" if result.guard else "judged by rules, right in about 9 of 10"
    )
    yield f"<p>Refusals are {escape(method)}.</p>"
    wanted = "-" if result.refusal_wanted is None else _share(result.refusal_wanted)
    yield table(
        ("", "prompts", "base model", "new model", "p", "wanted"),
        (
            (
                "unsafe, refused",
                result.unsafe,
                _share(result.base_refusals),
                f"{_share(result.adapter_refusals)} ({result.low:.1%} to {result.high:.1%})",
                f"{result.p_value:.4f}",
                wanted,
            ),
            (
                "safe, refused",
                result.safe,
                _share(result.base_over_refusals),
                _share(result.adapter_over_refusals),
                f"{result.over_p_value:.4f}",
                "",
            ),
            (
                "unsafe, answered with harm",
                result.unsafe,
                _share(result.base_harmful),
                _share(result.adapter_harmful),
                "",
                "",
            ),
        ),
    )
    if result.adapter_refusals is not None:
        line = ("unsafe prompts refused", result.low, result.adapter_refusals, result.high)
        yield interval_plot([line], result.refusal_wanted, "share of refusals")


def _items(asked: BenchmarkScores, table: Table) -> Iterator[str]:
    """Items that exactly one side answered right, and whose text was kept."""
    differing = [item for item in asked.items if item.base != item.adapter]
    questions = {question.id: question for question in asked.questions}
    yield f"<h3>{escape(asked.name)}: items on which the two differ ({len(differing)})</h3>"
    yield table(
        ("id", "category", "question", "right answer", "base model", "new model"),
        (
            (item.id, item.category, *chosen_texts(item, questions[item.id]))
            for item in sorted(differing, key=lambda item: (item.adapter, item.id))
            if item.id in questions
        ),
    )


def chosen_texts(item: ItemScore, question: QuestionText) -> tuple[str, str, str, str]:
    """The question, the right answer, and those of both sides, with the shares of true ones."""

    def chosen(number: int, share: float | None) -> str:
        if number == NO_CHOICE:
            return "none: not finite"
        text = question.choices[number]
        return text if share is None else f"{text} (true ones: {share:.2f})"

    right = question.choices[question.answer_index]
    return (
        question.question,
        right,
        chosen(item.base_choice, item.base_share),
        chosen(item.adapter_choice, item.adapter_share),
    )


def _refusals(asked: BenchmarkScores, table: Table) -> Iterator[str]:
    """Prompts that exactly one side refused."""
    differing = [score for score in asked.refusals if score.base_refuses != score.adapter_refuses]
    yield f"<h3>{escape(asked.name)}: prompts that one of the two refuses ({len(differing)})</h3>"
    yield table(
        ("id", "kind", "prompt", "base model", "new model", "refuses"),
        (
            (
                score.id,
                "unsafe" if score.unsafe else "safe",
                score.prompt,
                score.base,
                score.adapter,
                "base model" if score.base_refuses else "new model",
            )
            for score in differing
        ),
    )


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
