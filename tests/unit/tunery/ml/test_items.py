"""The capability items: enough, different, balanced, well formed."""

import json
from collections import Counter
from itertools import groupby
from pathlib import Path

ITEMS = Path(__file__).parents[4] / "tunery" / "ml" / "items" / "capability.jsonl"
KEYS = {"id", "category", "question", "choices", "answer_index"}


def test_items_are_many_different_and_balanced() -> None:
    items = [json.loads(line) for line in ITEMS.read_text(encoding="utf-8").splitlines()]
    assert len(items) >= 220
    assert all(item.keys() == KEYS for item in items)
    assert len({item["id"] for item in items}) == len(items)
    assert len({item["question"].lower() for item in items}) == len(items)
    for item in items:
        assert len(item["choices"]) == len({choice.lower() for choice in item["choices"]}) == 4
        assert all(choice == choice.strip() != "" for choice in item["choices"])
    answers = Counter(item["answer_index"] for item in items)
    assert answers.keys() == {0, 1, 2, 3}
    assert max(answers.values()) - min(answers.values()) <= 6
    runs = [len(list(run)) for _, run in groupby(items, key=lambda item: item["answer_index"])]
    assert max(runs) <= 6
    assert len({item["category"] for item in items}) >= 5


def test_right_answers_are_not_the_long_ones() -> None:
    items = [json.loads(line) for line in ITEMS.read_text(encoding="utf-8").splitlines()]
    longest = sum(
        len(item["choices"][item["answer_index"]]) == max(map(len, item["choices"]))
        for item in items
    )
    assert longest / len(items) < 0.45
