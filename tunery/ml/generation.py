"""Greedy answers, several prompts at a time."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from transformers import StoppingCriteria, StoppingCriteriaList

from tunery.ml.loss import passes_together

PROMPT_TOKENS_MAX: Final = 1_024
BATCH_TOKENS_MAX: Final = 9_216  # of prompts and answers, padding included: bounds the cache
BATCH_PROMPTS_MAX: Final = 64


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
    references: Sequence[str] = (),
    between: Callable[[int], None] = lambda done: None,
) -> list[str]:
    """The likeliest continuation of each prompt (token ids), without special tokens.

    Prompts are padded on the left; one longer than `PROMPT_TOKENS_MAX` keeps its end.

    references: of the first prompts; their answers end where they can no longer be equal to these
    between: called with the number of answers, by their tokens, after each token; may raise
    """
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    device = next(model.parameters()).device
    replies: list[str] = []
    for batch in batches([ids[-PROMPT_TOKENS_MAX:] for ids in prompts], new_tokens_max):
        width, begin = max(map(len, batch)), len(replies)
        of_batch = references[begin : begin + len(batch)]
        ids = torch.tensor([[pad] * (width - len(line)) + [*line] for line in batch])
        mask = torch.tensor([[0] * (width - len(line)) + [1] * len(line) for line in batch])
        with torch.no_grad():
            output = model.generate(
                input_ids=ids.to(device),
                attention_mask=mask.to(device),
                do_sample=False,
                max_new_tokens=new_tokens_max,
                pad_token_id=pad,
                use_cache=True,
                synced_gpus=passes_together(model),
                stopping_criteria=StoppingCriteriaList(
                    [
                        _AfterToken(between, begin, len(batch), new_tokens_max),
                        *([Unlike(tokenizer, width, of_batch)] if of_batch else ()),
                    ]
                ),
            )
        texts = tokenizer.batch_decode(output[:, width:].cpu(), skip_special_tokens=True)
        replies += [text.strip() for text in texts]
        between(len(replies))
    return replies


class _AfterToken(StoppingCriteria):  # type: ignore[misc]  # transformers has no types
    """Calls a function after each token, and ends no answer itself."""

    def __init__(
        self, between: Callable[[int], None], done: int, rows: int, tokens_max: int
    ) -> None:
        self._between = between
        self._done, self._rows, self._tokens_max, self._tokens = done, rows, tokens_max, 0

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        """False for each row."""
        self._tokens += 1
        self._between(self._done + self._rows * self._tokens // self._tokens_max)
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


class Unlike(StoppingCriteria):  # type: ignore[misc]  # transformers has no types
    """Ends answers that can no longer be equal to their references, which are of the first rows."""

    def __init__(self, tokenizer: Any, width: int, references: Sequence[str]) -> None:
        self._tokenizer, self._width = tokenizer, width
        self._references = [text.strip() for text in references]

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        """Whether each row ends."""
        answers = input_ids[: len(self._references), self._width :].cpu()
        texts = self._tokenizer.batch_decode(answers, skip_special_tokens=True)
        ends = torch.zeros(len(input_ids), dtype=torch.bool)
        for row, (text, reference) in enumerate(zip(texts, self._references, strict=True)):
            # the last token may be a part of a character, which is decoded as U+FFFD
            ends[row] = not reference.startswith(text.strip().rstrip("\ufffd"))
        return ends.to(input_ids.device)


def batches(
    prompts: Sequence[Sequence[int]], new_tokens_max: int
) -> Iterator[Sequence[Sequence[int]]]:
    """The prompts in their order, as many at a time as `BATCH_TOKENS_MAX` has room for."""
    start = width = 0
    for at, ids in enumerate(prompts):
        width = max(width, len(ids))
        count = at - start + 1
        full = count * (width + new_tokens_max) > BATCH_TOKENS_MAX or count > BATCH_PROMPTS_MAX
        if at > start and full:
            yield prompts[start:at]
            start, width = at, len(ids)
    if start < len(prompts):
        yield prompts[start:]
