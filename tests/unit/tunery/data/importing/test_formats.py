"""Published rows become items with the texts of lm-evaluation-harness."""

from pathlib import Path

import pytest

from tests.unit.tunery.data.importing import published
from tests.unit.tunery.data.importing.published import COUNT
from tunery.benchmarks.task import TaskUnusable, read_task
from tunery.data.importing.formats import import_task


def test_mmlu_has_the_examples_of_its_subject(tmp_path: Path) -> None:
    task = read_task(import_task("mmlu", *published.mmlu(tmp_path)))
    assert (task.header.shots, task.header.per_character, len(task.items)) == (5, False, COUNT)
    item = task.items[1]
    assert (item.category, item.choices, item.answer_index) == ("sea_travel", tuple("ABCD"), 1)
    text = task.begin(item)
    assert text.startswith(
        "The following are multiple choice questions (with answers) about sea travel.\n\n"
        "Which is sea_travel dev 0?\nA. one\nB. two\nC. three\nD. four\nAnswer: A\n\n"
    )
    assert text.endswith(
        "Answer: A\n\nWhich is sea_travel test 1?\nA. one\nB. two\nC. three\nD. four\nAnswer:"
    )
    assert text.count("Answer:") == 6
    assert [source.file for source in task.header.sources][:2] == [
        "sea_travel_test.csv",
        "tea_test.csv",
    ]


def test_hellaswag_is_cleaned_and_scored_by_characters(tmp_path: Path) -> None:
    files = published.hellaswag(tmp_path / "val.jsonl"), published.hellaswag(tmp_path / "t.jsonl")
    task = read_task(import_task("hellaswag", files[:1], files[1:]))
    assert (task.header.shots, task.header.per_character) == (10, True)
    item = task.items[1]
    assert item.question == "Making tea: How to make tea 1. Begin slowly. She"
    assert item.choices[1] == "runs away fast."
    assert task.begin(item).count("Making tea:") == 11


def test_arc_is_read_in_both_forms(tmp_path: Path) -> None:
    files = published.arc(tmp_path / "test.jsonl"), published.arc(tmp_path / "train.jsonl", 30)
    task = read_task(import_task("arc", files[:1], files[1:]))
    assert task.header.shots == 25
    assert {item.answer_index for item in task.items} == {0}
    assert task.items[1].question == "Question: What sinks in sea 1?\nAnswer:"
    assert task.begin(task.items[2]).startswith(
        "Question: What sinks in sea 0?\nAnswer: stone 0\n\n"
    )


def test_truthfulqa_is_asked_after_its_own_examples(tmp_path: Path) -> None:
    task = read_task(import_task("truthfulqa", [published.truthfulqa(tmp_path / "mc.jsonl")]))
    assert task.begin(task.items[0]).endswith(
        "A: The 1992 Olympics were held in Barcelona, Spain.\n\nQ: What if you eat seed 0?\nA:"
    )
    assert [item.choices[item.answer_index] for item in task.items[:2]] == [
        "Nothing happens 0",
        "Nothing happens 1",
    ]


def test_truthfulqa_mc2_has_all_true_answers_before_the_others(tmp_path: Path) -> None:
    rows = published.truthfulqa(tmp_path / "mc.jsonl")
    task = read_task(import_task("truthfulqa_mc2", [rows]))
    assert (task.header.kind, {item.true_choices for item in task.items}) == ("shares", {2})
    assert task.items[0].choices[:3] == ("Nothing happens 0", "You are 0 seeds richer", "You fly 0")
    assert set(task.items[1].choices[:2]) == {"Nothing happens 1", "You are 1 seeds richer"}
    asked_once = read_task(import_task("truthfulqa", [rows]))
    assert [task.begin(item) for item in task.items] == [
        asked_once.begin(item) for item in asked_once.items
    ]


def test_an_item_without_a_false_answer_has_no_share(tmp_path: Path) -> None:
    targets = {"choices": ["Yes", "Of course"], "labels": [1, 1]}
    rows = [{"question": f"Is {n} a number?", "mc2_targets": targets} for n in range(COUNT)]
    with pytest.raises(TaskUnusable, match="line 2: 2 of 2 choices are true"):
        import_task("truthfulqa_mc2", [published.lines(tmp_path / "mc.jsonl", rows)])


def test_files_that_were_imported_before_shares_keep_their_hash(tmp_path: Path) -> None:
    content = import_task("truthfulqa", [published.truthfulqa(tmp_path / "mc.jsonl", both=False)])
    assert b"true_choices" not in content
    assert read_task(content).header.kind == "choices"


def test_gsm8k_has_its_number(tmp_path: Path) -> None:
    files = published.gsm8k(tmp_path / "test.jsonl"), published.gsm8k(tmp_path / "train.jsonl")
    task = read_task(import_task("gsm8k", files[:1], files[1:]))
    assert (task.header.kind, task.items[3].answer) == ("numbers", "1003")
    assert task.begin(task.items[3]).count("####") == 5


def test_xstest_says_what_should_be_refused(tmp_path: Path) -> None:
    task = read_task(import_task("xstest", [published.xstest(tmp_path / "prompts.csv")]))
    assert (task.header.kind, task.header.shots) == ("safety", 0)
    assert [item.unsafe for item in task.items[:3]] == [True, False, True]


def test_own_rows_name_their_answer_by_number_letter_or_text(tmp_path: Path) -> None:
    answers = (1, "B", "tea")
    rows = [
        {"question": f"What is drunk at {n}?", "choices": ["sand", "tea"], "answer": answers[n % 3]}
        for n in range(COUNT)
    ]
    task = read_task(import_task("choices", [published.lines(tmp_path / "own.jsonl", rows)]))
    assert {item.answer_index for item in task.items} == {1}


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    files = published.mmlu(tmp_path)
    assert import_task("mmlu", *files) == import_task("mmlu", *files)
    assert import_task("mmlu", *files) != import_task("mmlu", *files, shots=4)


def test_what_cannot_be_imported_is_refused_with_file_and_row(tmp_path: Path) -> None:
    path = published.gsm8k(tmp_path / "test.jsonl")
    with pytest.raises(TaskUnusable, match="name their file with --examples"):
        import_task("gsm8k", [path])
    with pytest.raises(TaskUnusable, match="30 examples are needed for it; 24 are there"):
        import_task("gsm8k", [path], [path], shots=30)
    with pytest.raises(TaskUnusable, match=r"test\.jsonl, row 1: is not as this benchmark"):
        import_task("arc", [path], shots=0)
    with pytest.raises(TaskUnusable, match="at most 50"):
        import_task("gsm8k", [path], [path], shots=51)
    short = published.gsm8k(tmp_path / "short.jsonl", 3)
    with pytest.raises(TaskUnusable, match="it has 3 items"):
        import_task("gsm8k", [short], shots=0)
