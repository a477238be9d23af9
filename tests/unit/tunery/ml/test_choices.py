import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers.processors import TemplateProcessing

from tunery.ml.choices import ChoiceItem, TokenTree, likelihoods, pick, read_items, tokenise
from tunery.ml.score import ITEMS
from tunery.ml.sides import Sides
from tunery.work.exits import WorkError

pytestmark = pytest.mark.train


@pytest.fixture(scope="module")
def loaded(tiny: tuple[Path, str]) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(tiny[0], dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(tiny[0])


def item(number: int, choices: int = 4) -> ChoiceItem:
    words = ("a grey whale", "the sea", "salt", "forty-two lanterns at dusk", "fog")
    return ChoiceItem(
        id=str(number),
        question=f"What is number {number} on the list of things, and why?",
        choices=tuple(f"{words[(number + at) % 5]} {at}" for at in range(choices)),
        answer_index=number % choices,
        category="made-up",
    )


def alone(model: Any, tree: TokenTree) -> list[float]:
    """Every choice in a pass of its own, through the whole head."""
    scores = []
    for choice in tree.choices:
        ids = torch.tensor([[*tree.question, *choice]])
        with torch.no_grad():
            logs = torch.log_softmax(model(ids).logits[0], dim=-1)
        at = range(len(tree.question) - 1, ids.shape[1] - 1)
        scores.append(
            sum(float(logs[column, token]) for column, token in zip(at, choice, strict=True))
        )
    return scores


def test_shared_rows_give_the_numbers_of_single_passes(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    trees = [tokenise(item(number, 2 + number % 3), tokenizer) for number in range(5)]
    (together,) = likelihoods(Sides(model), trees)
    for tree, scores in zip(trees, together, strict=True):
        assert scores == pytest.approx(alone(model, tree), abs=1e-4)


def test_the_likeliest_choice_per_byte_is_picked(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    trees = [tokenise(item(number), tokenizer) for number in range(40)]
    reports: list[int] = []
    (picked,) = pick(Sides(model), trees, between=reports.append)
    assert len(reports) > 1
    assert reports[-1] == 40
    for tree, choice in zip(trees[:6], picked, strict=False):
        per_byte = [s / b for s, b in zip(alone(model, tree), tree.choice_bytes, strict=True)]
        assert choice == per_byte.index(max(per_byte))


def test_the_bundled_items_get_the_answers_of_single_passes(loaded: tuple[Any, Any]) -> None:
    """Every one of them: shared rows save time, and change no answer."""
    model, tokenizer = loaded
    trees = [tokenise(item, tokenizer) for item in read_items(ITEMS / "capability.jsonl")]
    (picked,) = pick(Sides(model), trees)
    assert len(trees) == 249
    for tree, choice in zip(trees, picked, strict=True):
        per_byte = [s / b for s, b in zip(alone(model, tree), tree.choice_bytes, strict=True)]
        assert choice == per_byte.index(max(per_byte))


def test_a_choice_is_what_it_adds_to_the_question(loaded: tuple[Any, Any]) -> None:
    tree = tokenise(item(1), loaded[1])
    texts = [loaded[1].decode(list(tree.question + choice)) for choice in tree.choices]
    assert texts[0] == f"Question: {item(1).question}\nAnswer: {item(1).choices[0]}"
    assert tree.choice_bytes == tuple(len(choice) for choice in item(1).choices)


def test_a_tokenizer_that_begins_texts_with_a_mark_gives_the_same_tokens(
    loaded: tuple[Any, Any],
) -> None:
    """As lm-evaluation-harness: Llama 3 puts one before every text."""
    marked = deepcopy(loaded[1])
    mark = ("<mark>", 1)
    marked.backend_tokenizer.post_processor = TemplateProcessing("<mark> $A", special_tokens=[mark])
    assert marked("fog").input_ids[0] == 1
    assert tokenise(item(1), marked) == tokenise(item(1), loaded[1])


GOOD = {"id": "1", "question": "q", "choices": ["a", "b"], "answer_index": 1, "category": "c"}


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"answer_index": 2}, "line 2: answer_index 2 names no choice"),
        ({"choices": ["a"]}, "line 2: needs 2 to 16 choices"),
        ({"choices": ["a", ""]}, "line 2: needs 2 to 16 choices"),
        ({"question": None}, "line 2: Expected `str`, got `null`"),
    ],
)
def test_a_bad_item_is_named(tmp_path: Path, changes: dict[str, Any], what: str) -> None:
    path = tmp_path / "items.jsonl"
    path.write_text(f"{json.dumps(GOOD)}\n{json.dumps(GOOD | changes)}\n")
    with pytest.raises(WorkError) as caught:
        read_items(path)
    assert what in caught.value.message


EXAMPLES = "".join(f"Question: What is {n} and {n}?\nAnswer: {2 * n}\n\n" for n in range(8))


def test_what_questions_share_is_read_once_and_gives_the_same_numbers(
    loaded: tuple[Any, Any],
) -> None:
    model, tokenizer = loaded
    trees = [tokenise(item(number), tokenizer, EXAMPLES) for number in range(20)]
    sides = Counted(model)
    (together,) = likelihoods(sides, trees, [range(20)])
    for tree, scores in zip(trees, together, strict=True):
        assert scores == pytest.approx(alone(model, tree), abs=5e-5)
    assert sides.tokens < sum(tree.tokens for tree in trees) / 3


def test_what_texts_begin_with_is_read_once_in_a_row_and_the_last_token_of_a_choice_never(
    loaded: tuple[Any, Any],
) -> None:
    model, tokenizer = loaded
    items = read_items(ITEMS / "capability.jsonl")[:20]
    trees = [tokenise(item, tokenizer) for item in items]
    sides = Counted(model)
    Counted.tokens = 0
    pick(sides, trees)
    texts = {tree.question + choice[:-1] for tree in trees for choice in tree.choices}
    assert sides.tokens == len({text[:end] for text in texts for end in range(1, len(text) + 1)})
    assert sides.tokens < 0.8 * sum(tree.tokens for tree in trees)


class Counted(Sides):
    """Counts the tokens that the model reads."""

    tokens = 0

    def _run(self, **inputs: Any) -> Any:
        type(self).tokens += inputs["input_ids"].numel()
        return super()._run(**inputs)
