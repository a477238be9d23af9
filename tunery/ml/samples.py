"""Answers to the user's prompts while a model is trained."""

from typing import Any, Final

import torch

from tunery.ml import generation
from tunery.ml.training_run import TrainingRun
from tunery.work.events import Sampled

TOKENS_MAX: Final = 40


def emit_samples(run: TrainingRun, model: Any, tokenizer: Any, step: int) -> None:
    """Emit the model's answers to the prompts after a step, without an effect on the training."""
    training = model.training
    model.eval()
    with torch.random.fork_rng():
        texts = generation.answers(
            model,
            tokenizer,
            [generation.render(tokenizer, prompt) for prompt in run.spec.prompts],
            new_tokens_max=TOKENS_MAX,
        )
    model.train(training)
    for prompt, text in zip(run.spec.prompts, texts, strict=True):
        run.events.emit(Sampled(step=step, prompt=prompt, answer=text))
