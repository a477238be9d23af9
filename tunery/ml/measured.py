"""Validation rows answered by both sides and measured as their tenant chose.

Both sides answer the same rows greedily. An answer may be as long as the longest reference needs,
so that rows with short answers cost little.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from tunery.measures.declaration import JUDGE, parse_measures
from tunery.measures.scoring import score_answer
from tunery.ml import generation
from tunery.ml.order import sample_rows
from tunery.work.exits import WorkError
from tunery.work.scores import MeasuredRow
from tunery.work.spec import ScoreSpec

SLACK: Final = 8  # tokens beyond the longest reference
Side: TypeAlias = Callable[[str], AbstractContextManager[Any]]
Report: TypeAlias = Callable[[str, int], Callable[[int], None]]


class AnswerableRow(Struct, frozen=True, kw_only=True):
    """A line of `validation.jsonl`."""

    row: int
    prompt: str
    prompt_ids: tuple[int, ...]
    reference: str


def measured_rows(
    spec: ScoreSpec, tokenizer: Any, side: Side, report: Report
) -> tuple[tuple[str, ...], tuple[MeasuredRow, ...]]:
    """The kinds of the measures, and the rows; nothing without measures.

    side: switches to the model that is called `base` or `adapter`
    report: makes a function that is called with the number of rows done in a stage
    """
    if spec.measures is None or spec.valid_rows is None:
        return (), ()
    declared = parse_measures(msgspec.json.decode(spec.measures))
    measures = tuple(measure for measure in declared if measure.kind != JUDGE)
    rows = _sample(Path(spec.valid_rows), spec.measured_rows)
    limit = answer_tokens(tokenizer, [row.reference for row in rows], spec.measured_tokens_max)
    answers: dict[str, list[str]] = {}
    for name in ("base", "adapter"):
        with side(name) as model:
            answers[name] = generation.answers(
                model,
                tokenizer,
                [row.prompt_ids for row in rows],
                new_tokens_max=limit,
                between=report(f"measured_{name}", len(rows)),
            )

    def scores(row: AnswerableRow, answer: str) -> tuple[float, ...]:
        item = {"prompt": row.prompt, "reference": row.reference}
        return tuple(score_answer(measure, item, answer) for measure in measures)

    def is_cut(answer: str) -> bool:
        return len(tokenizer(answer, add_special_tokens=False).input_ids) >= limit - 1

    both = zip(rows, answers["base"], answers["adapter"], strict=True)
    return tuple(measure.kind for measure in measures), tuple(
        MeasuredRow(
            row=row.row,
            group=sha256(repr(row.prompt_ids).encode()).hexdigest()[:16],
            prompt=row.prompt,
            reference=row.reference,
            base=base,
            adapter=adapter,
            base_cut=is_cut(base),
            adapter_cut=is_cut(adapter),
            base_scores=scores(row, base),
            adapter_scores=scores(row, adapter),
        )
        for row, base, adapter in both
    )


def _sample(path: Path, most: int) -> list[AnswerableRow]:
    lines = path.read_bytes().splitlines()
    try:
        return [
            msgspec.json.decode(lines[number], type=AnswerableRow)
            for number in sample_rows(len(lines), most)
        ]
    except msgspec.MsgspecError as error:
        message = f"{path.name}: {error}"
        raise WorkError("bad_data", message, "Prepare the dataset again.") from error


def answer_tokens(tokenizer: Any, references: Sequence[str], most: int) -> int:
    """How many tokens an answer may have."""
    lengths = [len(tokenizer(text, add_special_tokens=False).input_ids) for text in references] or [
        0
    ]
    return min(most, max(lengths) + SLACK)
