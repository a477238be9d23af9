"""Sequences that a session's model goes on with, and log-probabilities of given tokens.

Each sequence is drawn by a generator of its own, so that the same seed gives the same sequences.
Log-probabilities are those of one pass over the whole sequence, as a training's pass has them.
"""

from collections.abc import Sequence as Many
from hashlib import blake2b
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from tunery.ml.attention import document_bounds, never_masks
from tunery.ml.rollouts import SEED_BITS, SeededNoise
from tunery.work.session import SampleAnswer, SampleBody, Sequence

AT_ONCE_MAX: Final = 16  # sequences that are drawn together


def target_logprobs(model: Any, rows: Many[tuple[Tensor, Tensor]]) -> list[Tensor]:
    """Return the log-probabilities of the targets of rows, float32 [tokens] each, in one pass.

    rows: tokens and targets, int64; several only for a model whose rows may be joined
    """
    lengths = [len(tokens) for tokens, _ in rows]
    device = rows[0][0].device
    positions = torch.cat([torch.arange(length, device=device) for length in lengths])[None]
    logits = model(
        input_ids=torch.cat([tokens for tokens, _ in rows])[None],
        position_ids=positions,
        use_cache=False,
        **document_bounds(model, positions),
    ).logits[0]
    targets = torch.cat([targets for _, targets in rows])
    logprobs = -cross_entropy(logits.float(), targets, reduction="none")
    return list(torch.split(logprobs, lengths))


def joins_rows(model: Any) -> bool:
    """Return whether several sequences may be one row of a pass, without seeing each other."""
    return never_masks(model)


@torch.no_grad()
def sample(model: Any, tokenizer: Any, body: SampleBody) -> SampleAnswer:
    """Return sequences after a prompt, and the prompt's own log-probabilities if asked for."""
    device = next(model.parameters()).device
    prompt = tokens_of(body.prompt, device)
    drawn: list[Sequence] = []
    for begin in range(0, body.samples, AT_ONCE_MAX):
        numbers = range(begin, min(begin + AT_ONCE_MAX, body.samples))
        lines = _continued(model, tokenizer, prompt, body, [_seed(body.seed, n) for n in numbers])
        drawn += [_scored(model, prompt, line, body.tokens_max) for line in lines]
    own = _logprobs(model, prompt) if body.prompt_logprobs else None
    first = torch.full((1,), torch.nan)
    return SampleAnswer(
        sequences=tuple(drawn),
        prompt_logprobs=b"" if own is None else bytes_of(torch.cat([first, own.cpu()])),
    )


def tokens_of(values: bytes, device: torch.device) -> Tensor:
    """Return token ids as int64."""
    return torch.frombuffer(bytearray(values), dtype=torch.int32).long().to(device)


def bytes_of(values: Tensor) -> bytes:
    """Return float32 values, or token ids as int32, as bytes."""
    kind = torch.float32 if values.is_floating_point() else torch.int32
    content: bytes = values.detach().to("cpu", kind).contiguous().numpy().tobytes()
    return content


def _seed(seed: int, number: int) -> int:
    digest = blake2b(f"{seed}:{number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - SEED_BITS)


def _continued(
    model: Any, tokenizer: Any, prompt: Tensor, body: SampleBody, seeds: Many[int]
) -> list[list[int]]:
    """Return what comes after a prompt, with the token that ends it."""
    usual = model.generation_config.eos_token_id
    own = usual if isinstance(usual, list) else [usual]
    ends = own if body.stop_tokens is None else list(body.stop_tokens)
    steps = LogitsProcessorList()
    if body.temperature > 0:
        steps.append(TemperatureLogitsWarper(body.temperature))
        if body.top_k > 0:
            steps.append(TopKLogitsWarper(body.top_k))
        if body.top_p < 1:
            steps.append(TopPLogitsWarper(body.top_p))
        steps.append(SeededNoise(seeds, 1.0, prompt.device))
    ids = prompt.repeat(len(seeds), 1)
    texts = {"stop_strings": list(body.stop_texts), "tokenizer": tokenizer}
    output = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=body.tokens_max,
        eos_token_id=ends or None,
        pad_token_id=own[0],
        use_cache=True,
        logits_processor=steps,
        **(texts if body.stop_texts else {}),
    )
    lines = output[:, len(prompt) :].tolist()
    return [_until(line, set(ends), body.stop_texts, tokenizer) for line in lines]


def _until(line: list[int], ends: set[int], texts: Many[str], tokenizer: Any) -> list[int]:
    """Return tokens up to the first that ends the sequence, and with it."""
    for at, token in enumerate(line, 1):
        if token in ends or (texts and _has_ended(tokenizer.decode(line[:at]), texts)):
            return line[:at]
    return line


def _has_ended(text: str, stops: Many[str]) -> bool:
    return any(stop in text for stop in stops)


def _scored(model: Any, prompt: Tensor, line: list[int], tokens_max: int) -> Sequence:
    drawn = torch.tensor(line, device=prompt.device, dtype=torch.int64)
    scores = _logprobs(model, torch.cat([prompt, drawn]))[len(prompt) - 1 :]
    return Sequence(
        tokens=bytes_of(drawn), logprobs=bytes_of(scores), stopped=len(line) < tokens_max
    )


def _logprobs(model: Any, tokens: Tensor) -> Tensor:
    """Return the log-probabilities of all tokens but the first."""
    if len(tokens) < 2:
        return torch.empty(0)  # models take no sequence without a token
    return target_logprobs(model, [(tokens[:-1], tokens[1:])])[0]
