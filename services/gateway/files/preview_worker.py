"""Worker of previews, forked or run as a program: reads a task on stdin, answers on stdout."""

import resource
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Final, assert_never

import msgspec

from schemas.dataset import BaseTokens
from schemas.records import build_from
from services.gateway.files.domain.preview_tasks import (
    MEMORY_BYTES_MAX,
    PARAMS,
    Answer,
    Comparison,
    ComparisonAnswer,
    Count,
    CountAnswer,
    MovedModels,
    Preview,
    PreviewAnswer,
    PreviewProblem,
    RefusedTask,
    RowShown,
    Segment,
    Task,
)
from services.gateway.imports.move_page import move_page
from tunery.data.checking import Checker
from tunery.data.containers.reading import open_rows
from tunery.data.containers.row import Row
from tunery.data.findings.finding import Note
from tunery.data.tokens.chat_renderer import Rendered
from tunery.data.tokens.length_policy import check_policy, fit
from tunery.data.tokens.tokenizer import BaseUnusable, Encoded, Tokenizer, warm
from tunery.data.versions import diff

# codes of rows that a chat template fails on, or leaves a part out of
OF_TEMPLATES: Final = frozenset(
    ("template_drops_text", "template_failed", "template_without_tools", "missing_template")
)
PARTS_SHOWN_MAX: Final = 20  # of one row
__all__ = ("main", "run", "warm")  # `warm` for the fork server


def run() -> None:
    sys.stdout.buffer.write(main(sys.stdin.buffer.read()))
    sys.stdout.buffer.flush()


def main(asked: bytes) -> bytes:
    """Do a task within MEMORY_BYTES_MAX, which neither rows nor a chat template can exceed."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    task: Task = msgspec.json.decode(asked, type=Task)
    try:
        return msgspec.json.encode(answer(task))
    except MemoryError:
        text = f"The rows need more than {MEMORY_BYTES_MAX} bytes of memory; ask for fewer."
        return msgspec.json.encode(RefusedTask(message=text, param=PARAMS[type(task)]))


def answer(task: Task) -> Answer:
    """The answer to a task."""
    match task:
        case Preview():
            return preview(task)
        case Count():
            return count(task)
        case Comparison():
            outcome = diff(Path(task.before), Path(task.after))
            return ComparisonAnswer(difference=msgspec.to_builtins(outcome))
        case MovedModels():
            return move_page(task)
        case _:
            assert_never(task)


def preview(task: Preview) -> Answer:
    """Render the first valid rows, and report invalid rows before them."""
    try:
        tokenizer = Tokenizer.load(Path(task.tokenizer or task.base_path))
    except BaseUnusable as error:
        param = "model" if task.tokenizer is None else PARAMS[Count]
        return RefusedTask(message=str(error), param=param)
    checker = Checker(reasoning=task.reasoning)
    shown_rows: list[Row] = []
    rendered: list[Rendered] = []
    with open_rows(Path(task.path)) as rows:
        for row, conversation in islice(checker.conversations(rows), task.rows):
            outcome = tokenizer.render(conversation)
            if isinstance(outcome, Note):
                checker.findings.add(outcome.to_finding(row.number, row.line))
            else:
                shown_rows.append(row)
                rendered.append(outcome)
    if (wrong := check_policy(task.length_policy, checker.dialect)) is not None:
        checker.findings.add(wrong.to_finding(None, None))
    data: list[RowShown] = []
    for row, tokens in zip(shown_rows, tokenizer.encode(rendered), strict=True):
        parts = fit(tokens, task.max_length, task.length_policy)
        if isinstance(parts, Note):
            checker.findings.add(parts.to_finding(row.number, row.line))
            parts = [tokens.span(0, task.max_length)]
        data += _shown(row, tokens, parts, tokenizer)
    errors = checker.findings.with_severity("error")
    problems = [build_from(PreviewProblem, error) for error in errors]
    return PreviewAnswer(data=data, problems=problems)


def count(task: Count) -> Answer:
    """Count the tokens of all rows; refused where the chat format cannot show what they teach.

    Whatever else is wrong with a row, the file's validation says.
    """
    param = PARAMS[Count]
    try:
        checker = Checker(tokenizer=Tokenizer.load(Path(task.tokenizer)), reasoning=task.reasoning)
    except BaseUnusable as error:
        return RefusedTask(message=f"{param}: {error}", param=param)
    with open_rows(Path(task.path)) as rows:
        checker.run(rows)
    errors = checker.findings.with_severity("error")
    wrong = [error for error in errors if error.code in OF_TEMPLATES]
    if wrong:
        first = min(wrong, key=lambda error: error.row or 0)
        text = (
            f"{param}: it does not fit {len(wrong)} row{'' if len(wrong) == 1 else 's'} of "
            f"{task.source}. Row {first.row} {first.pointer}: {first.message} ({first.code}). "
            f"{first.hint}"
        )
        return RefusedTask(message=text, param=param)
    counted = checker.tokens()
    return CountAnswer(tokens=None if counted is None else build_from(BaseTokens, counted, task))


def _shown(
    row: Row, whole: Encoded, parts: Sequence[Encoded], tokenizer: Tokenizer
) -> Iterator[RowShown]:
    for number, part in enumerate(parts[:PARTS_SHOWN_MAX], start=1):
        segments = []
        for learnt, group in groupby(
            zip(part.ids, part.mask, strict=True), key=lambda pair: bool(pair[1])
        ):
            tokens = [token for token, _ in group]
            text = tokenizer.decode(tokens)
            segments.append(Segment(text=text, learnt=learnt, tokens=len(tokens)))
        yield RowShown(
            row=row.number,
            part=number,
            parts=len(parts),
            tokens=len(whole.ids),
            trainable_tokens=part.trainable,
            truncated=len(parts) == 1 and len(part.ids) < len(whole.ids),
            token_ids=part.ids,
            loss_mask=list(part.mask),
            segments=segments,
        )


if __name__ == "__main__":
    run()
