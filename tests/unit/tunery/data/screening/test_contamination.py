"""Benchmark items inside training rows: found in both forms, whole when short, in any script."""

from collections.abc import Sequence
from random import Random

import pytest

from tunery.data.screening.contamination import BenchmarkIndex, BenchmarkItem

RANDOM = Random(4)


def sentence(count: int) -> str:
    return " ".join("".join(RANDOM.choices("abcdefghijkl", k=6)) for _ in range(count))


def item(question: str, answer: str = "") -> BenchmarkItem:
    return BenchmarkItem(benchmark="exam", source="exam.jsonl:1", question=question, answer=answer)


def overlaps(
    items: Sequence[BenchmarkItem], texts: Sequence[str], n: int = 13
) -> list[tuple[int, int]]:
    return [(overlap.text, overlap.item) for overlap in BenchmarkIndex(items, n).overlaps(texts)]


QUESTION = sentence(30)
ANSWER = sentence(6)


@pytest.mark.parametrize("n", [13, 8])
def test_a_question_is_found_wherever_it_stands(n: int) -> None:
    texts = [f"{sentence(9)} {QUESTION.upper()}! {sentence(9)}", sentence(60)]
    [overlap] = BenchmarkIndex([item(QUESTION, ANSWER)], n).overlaps(texts)
    assert (overlap.text, overlap.item, overlap.percent) == (0, 0, 100)


def test_more_than_half_of_the_words_is_a_finding() -> None:
    parts = QUESTION.split()
    half, more = " ".join(parts[:15]), " ".join(parts[:16])
    assert overlaps([item(QUESTION)], [f"{half} {sentence(20)}"]) == []
    assert overlaps([item(QUESTION)], [f"{more} {sentence(20)}"]) == [(0, 0)]


def test_parts_count_when_the_same_row_has_them() -> None:
    parts = sentence(52).split()
    left, right = " ".join(parts[:14]), " ".join(parts[-14:])
    both = f"{left} {sentence(5)} {right}"
    assert overlaps([item(" ".join(parts))], [both]) == [(0, 0)]
    assert overlaps([item(" ".join(parts))], [left, right]) == []


def test_eight_words_see_a_changed_copy_that_thirteen_do_not() -> None:
    parts = QUESTION.split()
    changed = " ".join("xx" if index % 10 == 9 else word for index, word in enumerate(parts))
    assert overlaps([item(QUESTION)], [changed], 13) == []
    assert overlaps([item(QUESTION)], [changed], 8) == [(0, 0)]


def test_a_question_of_eight_to_twelve_words_must_be_there_whole() -> None:
    short = sentence(9)
    assert overlaps([item(short)], [f"so, {short}?"]) == [(0, 0)]
    assert overlaps([item(short)], [short.rsplit(" ", 1)[0]]) == []


def test_a_shorter_question_counts_with_its_answer_only() -> None:
    asked, answered = "Which theory is true?", "The third of the three theories"
    items = [item(asked, answered)]
    assert overlaps(items, [f"Well. {asked} I say nothing."]) == []
    assert overlaps(items, [f"{asked}\n{answered}."]) == [(0, 0)]


def test_items_that_are_too_short_are_not_searched() -> None:
    index = BenchmarkIndex([item("Yes?", "No"), item(QUESTION)])
    assert list(index.overlaps(["yes no", sentence(20)])) == []


def test_scripts_without_spaces_count_characters() -> None:
    asked = "小明有五个苹果，他又买了三个苹果，请问他现在一共有多少个苹果"
    assert overlaps([item(asked)], [f"题目：{asked}？"]) == [(0, 0)]
    assert overlaps([item(asked)], ["小明有五个苹果，别的没有。"]) == []


def test_no_items_and_no_texts() -> None:
    assert overlaps([], [QUESTION]) == []
    assert overlaps([item(QUESTION)], []) == []
    assert overlaps([item(QUESTION)], ["", "", QUESTION]) == [(2, 0)]
