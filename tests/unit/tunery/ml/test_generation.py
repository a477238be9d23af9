from pathlib import Path
from typing import Any

import pytest
import torch

from tunery.ml.generation import (
    BATCH_PROMPTS_MAX,
    BATCH_TOKENS_MAX,
    Unlike,
    answers,
    batches,
    render,
)

pytestmark = pytest.mark.train


@pytest.fixture(scope="module")
def loaded(tiny: tuple[Path, str]) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(tiny[0], dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(tiny[0])


def test_a_prompt_is_put_as_the_template_says(loaded: tuple[Any, Any]) -> None:
    text = loaded[1].decode(render(loaded[1], "Who are you?"))
    assert text.endswith("<|im_start|>user\nWho are you?<|im_end|>\n<|im_start|>assistant\n")


def test_batched_generation_equals_generation_one_by_one(loaded: tuple[Any, Any]) -> None:
    count = BATCH_PROMPTS_MAX + 2
    prompts = [render(loaded[1], "tell me " * (1 + number % 4)) for number in range(count)]
    reports: list[int] = []
    together = answers(*loaded, prompts, new_tokens_max=6, between=reports.append)
    alone = [answers(*loaded, [prompt], new_tokens_max=6)[0] for prompt in prompts]
    assert together == alone
    assert reports == sorted(reports)
    assert {BATCH_PROMPTS_MAX, count} <= set(reports)
    assert answers(*loaded, [], new_tokens_max=6) == []


def test_who_asks_for_answers_can_end_them_after_any_token(loaded: tuple[Any, Any]) -> None:
    class Enough(Exception):
        pass

    asked: list[int] = []

    def after_three(done: int) -> None:
        asked.append(done)
        if len(asked) == 3:
            raise Enough

    with pytest.raises(Enough):
        answers(*loaded, [[5, 6]] * 2, new_tokens_max=40, between=after_three)
    assert asked == [0, 0, 0]


def test_first_hour2_u8_answers_advance_with_their_tokens(loaded: tuple[Any, Any]) -> None:
    """The evaluation knew nothing of its answers until all of a batch were written."""
    reports: list[int] = []
    answers(*loaded, [[5, 6]] * 4, new_tokens_max=4, between=reports.append)
    assert reports == [1, 2, 3, 4, 4]


def test_first_hour2_u7_an_answer_ends_where_it_differs_from_its_reference(
    loaded: tuple[Any, Any],
) -> None:
    """Rows are answered for exact matches: what differs after a word needs no further one."""
    model, tokenizer = loaded
    prompts = [render(tokenizer, f"tell me {what}") for what in ("now", "of lamps", "why")]
    whole = answers(model, tokenizer, prompts, new_tokens_max=6)

    def passes(references: list[str]) -> tuple[list[str], int]:
        calls: list[int] = []
        handle = model.register_forward_pre_hook(lambda *_: calls.append(1))
        texts = answers(model, tokenizer, prompts, new_tokens_max=6, references=references)
        handle.remove()
        return texts, len(calls)

    assert passes(whole) == (whole, 6)
    texts, count = passes(["no model says this"] * 3)
    assert count == 1
    assert all(text != ended for text, ended in zip(whole, texts, strict=True))
    texts, count = passes(["no model says this", f" {whole[1]}\n"])
    assert (texts[1:], count) == (whole[1:], 6), "a prompt has no reference"
    assert passes([f"{text} and so on" for text in whole])[0] == whole


@pytest.mark.parametrize("reference", ["Zażółć gęślą jaźń", "灯塔 🗼 ok", "two  words"])
def test_first_hour2_u7_an_answer_does_not_end_within_a_character(
    loaded: tuple[Any, Any], reference: str
) -> None:
    tokenizer = loaded[1]
    ids = tokenizer(reference).input_ids
    assert len(ids) > 2
    unlike = Unlike(tokenizer, 1, [f"{reference} "])
    for end in range(1, len(ids) + 1):
        assert unlike(torch.tensor([[5, *ids[:end]]]), None).tolist() == [False]
    assert unlike(torch.tensor([[5, *ids, 77]]), None).tolist() == [True]


@pytest.mark.parametrize(
    ("lengths", "new_tokens", "sizes"),
    [
        ([], 6, []),
        ([1_024] * 10, 128, [8, 2]),
        ([64] * 100, 128, [48, 48, 4]),
        ([4] * (2 * BATCH_PROMPTS_MAX), 4, [BATCH_PROMPTS_MAX] * 2),
        ([64] * 8 + [1_024] * 8, 128, [8, 8]),
        ([64], BATCH_TOKENS_MAX, [1]),
        ([64] * 2, BATCH_TOKENS_MAX, [1, 1]),
    ],
)
def test_a_batch_has_as_many_prompts_as_there_is_room_for(
    lengths: list[int], new_tokens: int, sizes: list[int]
) -> None:
    prompts = [[at] * length for at, length in enumerate(lengths)]
    parts = list(batches(prompts, new_tokens))
    assert [len(batch) for batch in parts] == sizes
    assert [ids for batch in parts for ids in batch] == prompts
