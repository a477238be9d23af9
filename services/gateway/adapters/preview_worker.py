"""`python -m services.gateway.adapters.preview_worker`: a task on stdin, its answer on stdout."""

import sys
from itertools import groupby, islice
from pathlib import Path

import msgspec

from services.gateway.domain.previews import (
    Answer,
    Problem,
    Refused,
    RowShown,
    Segment,
    Shown,
    Task,
)
from tunery.data.checking import Checker
from tunery.data.findings import Finding, Note
from tunery.data.reading import open_rows
from tunery.data.rendering import BaseUnusable, Encoded, Tokenizer


def preview(task: Task) -> Answer:
    """The first good rows; what is wrong with those before them is told beside them."""
    try:
        tokenizer = Tokenizer.load(Path(task.base_path))
    except BaseUnusable as error:
        return Refused(message=str(error), param="model")
    checker, numbers, rendered = Checker(), [], []
    with open_rows(Path(task.path)) as rows:
        for row, conversation in islice(checker.conversations(rows), task.rows):
            found = tokenizer.render(conversation)
            if isinstance(found, Note):
                checker.findings.add(found.at(row.number, row.line))
            else:
                numbers.append(row.number)
                rendered.append(found)
    encoded = zip(numbers, tokenizer.encode(rendered), strict=True)
    return Shown(
        data=[_row(number, one, tokenizer, task.max_length) for number, one in encoded],
        problems=[_problem(one) for one in checker.findings.of("error")],
    )


def _row(number: int, row: Encoded, tokenizer: Tokenizer, max_length: int | None) -> RowShown:
    ids, mask = row.ids[:max_length], row.mask[:max_length]
    segments = []
    for learnt, group in groupby(zip(ids, mask, strict=True), key=lambda one: bool(one[1])):
        tokens = [token for token, _ in group]
        text = tokenizer.decode(tokens)
        segments.append(Segment(text=text, learnt=learnt, tokens=len(tokens)))
    return RowShown(
        row=number,
        tokens=len(row.ids),
        trainable_tokens=mask[1:].count(1),
        truncated=len(ids) < len(row.ids),
        token_ids=ids,
        loss_mask=list(mask),
        segments=segments,
    )


def _problem(found: Finding) -> Problem:
    return Problem(
        row=found.row,
        pointer=found.pointer,
        code=found.code,
        message=found.message,
        hint=found.hint,
    )


if __name__ == "__main__":
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    sys.stdout.buffer.write(msgspec.json.encode(preview(asked)))
