"""Moved models beside the old ones as a page, made in a process apart from files of the tenant."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from services.gateway.files.domain.preview_tasks import (
    READ_FILES,
    MovedModels,
    PageAnswer,
    RefusedTask,
)
from services.gateway.imports.judgement import judge_move
from tunery.comparison.models import HeldOutQuestion, JudgedMove, Move, compared
from tunery.comparison.page import comparison_page

PAGE_BYTES_MAX: Final = 16 * 1024**2


class MeasuredMove(Move, frozen=True):
    """A move, and the measures by which both models are compared, as `eval.measures`."""

    measures: list[Any]


class Moves(msgspec.Struct, frozen=True):
    """Moves of all models of an import.

    spent_micro: cost of the old ones' answers; judge: the model that compares answers, if any
    """

    spent_micro: int
    moves: list[MeasuredMove]
    judge: str | None = None


def old_answers(content: bytes) -> dict[str, list[tuple[HeldOutQuestion, str]]]:
    """Return questions with what old models have answered, by the job there.

    content: of `teacher_file_id`; a question has the number of its line
    """
    answers = defaultdict(list)
    for number, text in enumerate(content.splitlines(), 1):
        line = msgspec.json.decode(text)
        asked = HeldOutQuestion(str(number), line["messages"], line["tools"], line["reference"])
        answers[line["job_id"]].append((asked, line["answer"]))
    return answers


def row_name(job_id: str, question: HeldOutQuestion) -> str:
    """Return the `custom_id` of a question to the model of a job here."""
    return f"{job_id}:{question.id}"


def new_answers(contents: Sequence[bytes]) -> dict[str, str]:
    """Return what models have answered in the output files of batches, by `custom_id`."""
    return {name: text for content in contents for name, text in _answers(content)}


def _answers(content: bytes) -> Iterator[tuple[str, str]]:
    for text in content.splitlines():
        line = msgspec.json.decode(text)
        message = line["response"]["body"]["choices"][0]["message"]
        yield line["custom_id"], message["content"] or ""


def move_page(task: MovedModels) -> PageAnswer | RefusedTask:
    """Compare models, and render the page. Raises OSError."""
    known = msgspec.json.decode(Path(task.moves).read_bytes(), type=Moves)
    before = old_answers(Path(task.old).read_bytes())
    after = new_answers([Path(name).read_bytes() for name in task.new])
    said = new_answers([Path(name).read_bytes() for name in task.judged])
    moved = []
    for move in known.moves:
        answered = [*both_answers(move.job_id, move.new_job, before, after)]
        judge = None if known.judge is None else _judge(known.judge, move, answered, said)
        moved.append(compared(move, move.measures, answered, judge))
    page = comparison_page(moved, known.spent_micro)
    if len(page.encode()) > PAGE_BYTES_MAX:
        text = f"The page would have more than {PAGE_BYTES_MAX:,} bytes. {READ_FILES}"
        return RefusedTask(message=text, param="import_id")
    return PageAnswer(html=page)


def _judge(
    judge: str,
    move: Move,
    answered: Sequence[tuple[HeldOutQuestion, str, str]],
    said: Mapping[str, str],
) -> JudgedMove | None:
    if not answered:
        return None
    asked = [(row_name(str(move.new_job), question), old, new) for question, old, new in answered]
    return judge_move(judge, asked, said)


def both_answers(
    old_job: str,
    new_job: str | None,
    before: Mapping[str, list[tuple[HeldOutQuestion, str]]],
    after: Mapping[str, str],
) -> Iterator[tuple[HeldOutQuestion, str, str]]:
    """Yield the questions that the models of both jobs have answered, with the answers."""
    for question, old in before.get(old_job, ()):
        new = after.get(row_name(str(new_job), question))
        if new is not None:
            yield question, old, new
