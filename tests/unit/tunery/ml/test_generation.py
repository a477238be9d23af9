from pathlib import Path
from typing import Any

import pytest
import torch

from tunery.ml.generation import BATCH, answers, render

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
    prompts = [render(loaded[1], "tell me " * (1 + number % 4)) for number in range(BATCH + 2)]
    reports: list[int] = []
    together = answers(*loaded, prompts, new_tokens_max=6, between=reports.append)
    alone = [answers(*loaded, [prompt], new_tokens_max=6)[0] for prompt in prompts]
    assert together == alone
    assert reports == [BATCH, BATCH + 2]
    assert answers(*loaded, [], new_tokens_max=6) == []
