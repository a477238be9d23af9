"""Greedy answers, several prompts at a time."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

BATCH = 8
PROMPT_TOKENS_MAX = 1_024


def render(tokenizer: Any, prompt: str) -> list[int]:
    """Token ids of a user's message, rendered with the chat template up to the answer."""
    text = prompt
    if tokenizer.chat_template is not None:
        messages = [{"role": "user", "content": prompt}]
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    ids: list[int] = tokenizer(text, add_special_tokens=False).input_ids
    return ids


def answers(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[Sequence[int]],
    *,
    new_tokens_max: int,
    between: Callable[[int], None] = lambda done: None,
) -> list[str]:
    """The likeliest continuation of each prompt (token ids), without special tokens.

    Prompts are padded on the left; one longer than `PROMPT_TOKENS_MAX` keeps its end.
    """
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    device = next(model.parameters()).device
    replies: list[str] = []
    for start in range(0, len(prompts), BATCH):
        batch = [list(ids[-PROMPT_TOKENS_MAX:]) for ids in prompts[start : start + BATCH]]
        width = max(map(len, batch))
        ids = torch.tensor([[pad] * (width - len(line)) + line for line in batch])
        mask = torch.tensor([[0] * (width - len(line)) + [1] * len(line) for line in batch])
        with torch.no_grad():
            output = model.generate(
                input_ids=ids.to(device),
                attention_mask=mask.to(device),
                do_sample=False,
                max_new_tokens=new_tokens_max,
                pad_token_id=pad,
                use_cache=True,
            )
        texts = tokenizer.batch_decode(output[:, width:].cpu(), skip_special_tokens=True)
        replies += [text.strip() for text in texts]
        between(len(replies))
    return replies
