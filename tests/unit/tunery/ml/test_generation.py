from pathlib import Path
from typing import Any

import pytest
import torch

from tunery.ml.generation import BATCH_PROMPTS_MAX, BATCH_TOKENS_MAX, answers, batches, render

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
