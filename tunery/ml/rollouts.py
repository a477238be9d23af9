"""Answers that a model writes to prompts while it is trained, and what a grader says of them.

Each answer is drawn by its own generator, whose seed follows from the training's seed, the
step, the prompt and the number of the answer. So an attempt that continues from a checkpoint draws
the same answers on the same device, however a step is divided.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import msgspec
import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

from tunery.graders.grader import Grader, asks_models, parse
from tunery.graders.grading import grade
from tunery.ml.generation import answers
from tunery.ml.loss import passes_together
from tunery.ml.model_scores import ModelScores
from tunery.ml.packed import ITEM_BYTES, ITEM_LENGTHS, PROMPT
from tunery.work.exits import WorkError

SEED_BITS: Final = 63


@dataclass(frozen=True)
class Prompt:
    """A prompt of a batch: its token ids int64 [tokens], and what a grader reads, as JSON."""

    ids: Tensor
    item: bytes


@dataclass(frozen=True)
class AnswerGroup:
    """The answers to one prompt: their token ids, and the reward of each, float32 [answers]."""

    prompt: Prompt
    completions: tuple[tuple[int, ...], ...]
    rewards: Tensor


class SeededNoise(LogitsProcessor):  # type: ignore[misc]  # transformers is untyped
    """Makes the likeliest token a drawn one: Gumbel noise, from one generator for each answer."""

    def __init__(self, seeds: Sequence[int], temperature: float, device: torch.device) -> None:
        self._generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]
        self._temperature = temperature

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        waits = torch.stack(
            [torch.empty_like(scores[0]).exponential_(generator=own) for own in self._generators]
        )
        return scores / self._temperature - waits.log()


@dataclass(frozen=True)
class Rollouts:
    """Writes and grades answers."""

    tokenizer: Any  # tokenizer of the base model
    grader: Grader  # grades the answers
    tokens_max: int  # largest number of tokens of one answer
    # relay to the models that the grader asks; None: it asks none
    scores: ModelScores | None = None

    def group(
        self, model: Any, prompt: Prompt, seeds: Sequence[int], temperature: float
    ) -> AnswerGroup:
        completions = self._write(model, prompt, seeds, temperature)
        texts = [self.tokenizer.decode(ids, skip_special_tokens=True) for ids in completions]
        return AnswerGroup(prompt, completions, self._grade([prompt] * len(texts), texts))

    def rewards(self, model: Any, prompts: Sequence[Prompt]) -> Tensor:
        """Generate the greedy answer to each prompt and return its rewards, float32 [prompts]."""
        texts = answers(
            model,
            self.tokenizer,
            [prompt.ids.tolist() for prompt in prompts],
            new_tokens_max=self.tokens_max,
        )
        return self._grade(prompts, texts)

    def _grade(self, prompts: Sequence[Prompt], texts: Sequence[str]) -> Tensor:
        """Return the reward of one answer to each prompt, float32 [prompts].

        Scores of models are requested for all answers at once.
        """
        items = [msgspec.json.decode(prompt.item) for prompt in prompts]
        samples = list(zip(items, texts, strict=True))
        ask = None
        if self.scores is not None:
            self.scores.learn(self.grader, samples)
            ask = self.scores.look_up
        rewards = [grade(self.grader, item, text, ask).reward for item, text in samples]
        return torch.tensor(rewards, dtype=torch.float32)

    def _write(
        self, model: Any, prompt: Prompt, seeds: Sequence[int], temperature: float
    ) -> tuple[tuple[int, ...], ...]:
        tokenizer, device = self.tokenizer, prompt.ids.device
        pad = (
            tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        )
        noise = SeededNoise(seeds, temperature, device)
        ids = prompt.ids.repeat(len(seeds), 1)
        training = model.training
        model.eval()
        with torch.no_grad():
            output = model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=self.tokens_max,
                pad_token_id=pad,
                use_cache=True,
                synced_gpus=passes_together(model),
                logits_processor=LogitsProcessorList([noise]),
            )
        model.train(training)
        ends = model.generation_config.eos_token_id
        stops = set(ends if isinstance(ends, list) else [ends])
        return tuple(_until(line, stops) for line in output[:, ids.shape[1] :].tolist())


def rollouts_of(
    declaration: str | None, tokenizer: Any, tokens_max: int, scores: ModelScores | None = None
) -> Rollouts:
    """Raises WorkError if the job lacks a grader, or a way to ask the models of its grader."""
    if declaration is None:
        fix = "Submit the job again with a grader."
        raise WorkError("user", "the grader of this job was deleted with its tenant's key", fix)
    grader = parse(msgspec.json.decode(declaration))
    if asks_models(grader) and scores is None:
        fix = "Start this process through the agent of a node with TUNERY_NODE_SCORE_URL."
        raise WorkError(
            "bad_node", "the grader asks a model, and this process cannot ask models", fix
        )
    return Rollouts(tokenizer, grader, tokens_max, scores if asks_models(grader) else None)


def prompts_of(batch: dict[str, Tensor]) -> list[Prompt]:
    """The prompts of a batch of packed rows."""
    items = torch.split(batch[ITEM_BYTES], batch[ITEM_LENGTHS].tolist())
    ids, numbers = batch["input_ids"][batch["is_text"]], batch["sequences"][batch["is_text"]]
    lengths = torch.bincount(numbers, minlength=len(items)).tolist()
    return [
        Prompt(part, bytes(item.tolist()))
        for part, item in zip(torch.split(ids, lengths), items, strict=True)
    ]


def count_prompts(batch: dict[str, Tensor]) -> int:
    return int((batch["roles"] == PROMPT).sum())


def seeds_of(seed: int, step: int, prompt: Prompt, answers: int) -> list[int]:
    """A seed for each answer to a prompt in a step."""
    text = ",".join(map(str, prompt.ids.tolist())).encode() + prompt.item
    name = blake2b(text, digest_size=16).hexdigest()
    drawn = (
        blake2b(f"{seed}:{step}:{name}:{number}".encode(), digest_size=8).digest()
        for number in range(answers)
    )
    return [int.from_bytes(digest, "big") >> (64 - SEED_BITS) for digest in drawn]


def _until(ids: Sequence[int], stops: set[int]) -> tuple[int, ...]:
    """Token ids up to the first that ends an answer, and with it."""
    end = next((at for at, token in enumerate(ids, 1) if token in stops), len(ids))
    return tuple(ids[:end])
