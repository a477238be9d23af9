"""Try a base model before it is added: `python -m tunery.ml.base_check FOLDER` prints JSON.

It loads without code of its own, its template shows a message, it has an end, and it answers some
of the bundled questions with likelihoods that are numbers. Whether it answers more than chance is
told: a model of random weights may be wanted, for tests.
"""

import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from math import comb, isfinite
from pathlib import Path
from typing import Any, Final

import msgspec
import torch
from msgspec import Struct
from safetensors import safe_open
from transformers import AutoTokenizer

from tunery.ml import choices
from tunery.ml.language import load_language_model
from tunery.ml.score import ITEMS
from tunery.ml.sides import Sides
from tunery.platform.blobs.base_files import weight_files
from tunery.work.exits import WorkError

EVERY: Final = 6  # of the bundled items, one of so many is asked
MESSAGE: Final = "Which words are these?"
ANSWER: Final = "These words."
MISSING_NAMED: Final = 3  # names of missing weights in a message
HAS_OWN_CODE: Final = "contains custom code"  # in transformers' refusal
LEVEL: Final = 0.05  # more than chance: so seldom by chance


class Problem(Struct, frozen=True):
    """Why a base model cannot be added."""

    name: str  # name for scripts
    text: str
    fix: str  # what to do


class BaseCheck(Struct, frozen=True):
    """Result of checking a base model."""

    problems: tuple[Problem, ...] = ()  # reasons why it cannot be added; empty: it can
    notes: tuple[str, ...] = ()  # remarks for the operator
    # items, right: number of questions asked, and of right answers
    items: int = 0
    right: int = 0
    chance: float = 0.0  # share of right answers by guessing, 0 to 1


def check(folder: Path) -> BaseCheck:
    """Try the base model in a folder."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        model, loaded = load_language_model(folder, dtype="auto", output_loading_info=True)
        model.eval()
    except WorkError as error:
        return BaseCheck((Problem("no_language_model", error.message, error.advice),))
    except (
        Exception
    ) as error:  # libraries raise what they like for files that are not as they think
        return BaseCheck((_why_unloaded(folder, error),))
    problems = (
        *_of_weights(model, loaded["missing_keys"]),
        *_of_tokenizer(tokenizer, model),
        *_of_template(tokenizer),
    )
    if problems:
        return BaseCheck(problems)
    return _of_answers(model, tokenizer, _endless(tokenizer, model))


def _why_unloaded(folder: Path, error: Exception) -> Problem:
    text = f"{folder}: {error}"[:500]
    if HAS_OWN_CODE in str(error):
        fix = "Take a base of a family that transformers has."
        return Problem("needs_own_code", f"code of a base is never run: {text}", fix)
    with suppress(OSError, ValueError, KeyError):  # else the library's own words
        for file in weight_files(folder):
            try:
                with safe_open(file, "pt"):
                    pass
            except Exception as damage:  # of a type of the library's own, or OSError
                text = f"{file} cannot be read: {damage}"[:500]
                return Problem("does_not_load", text, "Download this file again.")
    fix = "Download the folder again, or convert it with `save_pretrained`."
    return Problem("does_not_load", text, fix)


def _of_weights(model: Any, missing: Collection[str]) -> Iterator[Problem]:
    """Problems of what transformers accepts: it draws missing weights at random."""
    if missing:
        some = ", ".join(sorted(missing)[:MISSING_NAMED])
        text = f"its files have no {some}" + (", …" if len(missing) > MISSING_NAMED else "")
        fix = "Download the folder again; tie_word_embeddings of config.json must fit the weights."
        yield Problem("weights_missing", text, fix)
    head, table = model.get_output_embeddings(), model.get_input_embeddings()
    # Some wrappers say it of the whole alone, as Qwen3-VL.
    is_tied = getattr(model.config.get_text_config(), "tie_word_embeddings", False)
    if is_tied and head is not None and not torch.equal(head.weight, table.weight):
        text = (
            "config.json ties the output layer to the table of tokens, but its files have another"
        )
        fix = "Set tie_word_embeddings to false, or remove lm_head.weight: engines take either."
        yield Problem("heads_disagree", text, fix)


def _of_tokenizer(tokenizer: Any, model: Any) -> Iterator[Problem]:
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        text = f"the tokenizer knows {len(tokenizer):,} tokens, and the model {rows:,}"
        yield Problem("tokenizer_too_large", text, "Take the tokenizer of this model.")
    if not _ends(tokenizer, model):
        text = "neither the tokenizer nor generation_config.json names a token that ends an answer"
        yield Problem("end_token_missing", text, "Set eos_token in tokenizer_config.json.")


def _of_template(tokenizer: Any) -> Iterator[Problem]:
    if tokenizer.chat_template is None:
        fix = "Give it one with --chat-template FILE, as the model's instructed version has it."
        yield Problem("template_missing", "there is no chat template", fix)
        return
    try:
        shown = tokenizer.apply_chat_template(
            [{"role": "user", "content": MESSAGE}], add_generation_prompt=True, tokenize=False
        )
    except Exception as error:  # templates are programs
        fix = "Correct chat_template.jinja."
        yield Problem("template_fails", f"the chat template fails: {error}"[:500], fix)
        return
    if MESSAGE not in shown:
        text = "the chat template does not show the message of a user"
        yield Problem("template_hides_messages", text, "Correct chat_template.jinja.")


def _ends(tokenizer: Any, model: Any) -> set[int]:
    """The tokens that end an answer."""
    named = getattr(model.generation_config, "eos_token_id", None)
    several = named if isinstance(named, list) else [named]
    return {end for end in (*several, tokenizer.eos_token_id) if end is not None}


def _endless(tokenizer: Any, model: Any) -> tuple[str, ...]:
    """A note where the template does not end an answer with a token that ends answers."""
    turns = [{"role": "user", "content": MESSAGE}, {"role": "assistant", "content": ANSWER}]
    shown = tokenizer.apply_chat_template(turns, tokenize=False)
    after = tokenizer(shown.rpartition(ANSWER)[2], add_special_tokens=False).input_ids
    if _ends(tokenizer, model) & set(after):
        return ()
    text = "the chat template ends answers with no end token: trained models may not stop"
    return (f"{text}; --eot-token names the one that ends a turn",)


def _of_answers(model: Any, tokenizer: Any, notes: tuple[str, ...]) -> BaseCheck:
    items = choices.read_items(ITEMS / "capability.jsonl")[::EVERY]
    trees = [choices.tokenise(item, tokenizer) for item in items]
    (scores,) = choices.likelihoods(Sides(model), trees)
    if not all(isfinite(value) for values in scores for value in values):
        text = "likelihoods of answers are infinite or not a number"
        fix = "Its files are damaged, or its precision is too small: take other weights."
        return BaseCheck((Problem("not_finite", text, fix),), notes, len(items))
    (picked,) = choices.picked_of([scores], trees)
    right = sum(choice == item.answer_index for choice, item in zip(picked, items, strict=True))
    chance = sum(1 / len(item.choices) for item in items) / len(items)
    if at_least(right, len(items), chance) >= LEVEL:
        outcome = f"it answered {right} of {len(items)} easy questions, as chance does"
        notes += (f"{outcome}: the gate cannot show that it lost anything",)
    return BaseCheck((), notes, len(items), right, chance)


def at_least(right: int, items: int, chance: float) -> float:
    """Probability that chance alone gives at least this number of right answers."""
    return sum(
        comb(items, k) * chance**k * (1 - chance) ** (items - k) for k in range(right, items + 1)
    )


def main(arguments: Sequence[str]) -> None:
    """Print the result of checking a folder as JSON."""
    torch.set_grad_enabled(False)
    print(msgspec.json.encode(check(Path(arguments[0]))).decode())


if __name__ == "__main__":
    main(sys.argv[1:])
