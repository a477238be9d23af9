"""Files of benchmarks: what is refused, and which items are a sample."""

import json

import pytest

from tests.unit.tunery.benchmarks.tasks import CHOICES_ITEMS, choices_task, safety_task
from tunery.benchmarks.task import ITEMS_MAX, TaskUnusable, read_task

CONTENT = choices_task()


def changed(number: int, **fields: object) -> bytes:
    """The file with other fields in one of its lines."""
    lines = CONTENT.splitlines()
    lines[number] = json.dumps({**json.loads(lines[number]), **fields}).encode()
    return b"\n".join(lines)


def test_what_is_written_is_read_and_equal_items_give_equal_bytes() -> None:
    task = read_task(CONTENT)
    assert len(task.items) == CHOICES_ITEMS
    assert choices_task() == CONTENT
    assert task.begin(task.items[1]).startswith("Question: Which is thing 99?\nAnswer: thing 99")
    assert task.begin(task.items[0]) == "Question: Which is thing 0?\nAnswer:"


def test_a_sample_is_the_same_for_every_model_and_grows_without_changing() -> None:
    task = read_task(choices_task(200))
    small, large = task.sample(20), task.sample(60)
    ids = [{item.id for item in sample.items} for sample in (small, large)]
    assert (len(ids[0]), len(ids[1])) == (20, 60)
    assert ids[0] < ids[1]
    assert ids[0] != {item.id for item in task.items[:20]}, "the first ones are no sample"
    assert task.sample(200) is task


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "it is empty"),
        (b"x\n", "line 1 is no header"),
        (CONTENT.splitlines()[0], "it has 0 items; give 20 to"),
        (changed(0, form=2), "its form is 2"),
        (changed(0, kind="other"), "line 1 is no header"),
        (changed(0, beginnings={"shown": "x" * 100_001}), "beginnings of 100000 characters"),
        (changed(3, choices=["a"]), "line 4: needs 2 to 16 choices"),
        (changed(3, answer_index=3), "line 4: answer_index 3 names no choice"),
        (changed(3, beginning="other"), "line 4: the header has no beginning 'other'"),
        (changed(3, question=" "), "line 4: id and question must not be empty"),
        (changed(3, extra=1), "line 4 is no item"),
        (changed(3, id="c1"), "two items have the same id"),
        (CONTENT + b"[" * 100_000, "line 26 is no item"),
        (CONTENT + CONTENT.splitlines()[1] * (ITEMS_MAX * 20), "at most|is no item"),
        (safety_task().replace(b'"unsafe":true', b'"unsafe":false'), "none of its prompts"),
    ],
)
def test_a_file_that_is_no_benchmark_is_refused_with_its_line(content: bytes, problem: str) -> None:
    with pytest.raises(TaskUnusable, match=problem):
        read_task(content)
