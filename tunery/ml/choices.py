"""Multiple-choice items scored in shared rows: each question is read once for all its choices.

A row holds whole items. A token attends to its item's question, and to what comes before it in its
own choice; positions restart accordingly. So one forward pass scores what would be
items × choices passes, with the same numbers.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec
import torch
from msgspec import Struct
from torch import Tensor

from tunery.work.exits import WorkError
from tunery.work.scores import NO_CHOICE, ItemScore, QuestionText

ROW_TOKENS = 512
ITEM_TOKENS_MAX = 2_048
CHOICES_MAX = 16
QUESTION = "Question: {question}\nAnswer:"


class ChoiceItem(Struct, frozen=True, kw_only=True):
    """One question with its choices; `answer_index` names the right one."""

    id: str
    question: str
    choices: tuple[str, ...]
    answer_index: int
    category: str


@dataclass(frozen=True)
class TokenTree:
    """An item in tokens: the question once, then every choice, and the choices' byte lengths."""

    question: tuple[int, ...]
    choices: tuple[tuple[int, ...], ...]
    choice_bytes: tuple[int, ...]

    @property
    def tokens(self) -> int:
        return len(self.question) + sum(map(len, self.choices))


def read_items(path: Path) -> tuple[ChoiceItem, ...]:
    """Items from JSON lines. Raises `WorkError("platform")` naming the line: the items are ours."""
    items = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            item = msgspec.json.decode(line, type=ChoiceItem)
        except msgspec.MsgspecError as error:
            raise _bad(path, number, str(error)) from error
        if not 2 <= len(item.choices) <= CHOICES_MAX or not all(item.choices):
            raise _bad(path, number, f"needs 2 to {CHOICES_MAX} choices, none of them empty")
        if not 0 <= item.answer_index < len(item.choices):
            raise _bad(path, number, f"answer_index {item.answer_index} names no choice")
        items.append(item)
    return tuple(items)


def questions_that_differ(
    items: Sequence[ChoiceItem], scores: Sequence[ItemScore]
) -> tuple[QuestionText, ...]:
    """The texts of the items that exactly one side answered right: the gate's report shows them."""
    differing = {score.id for score in scores if score.base != score.adapter}
    return tuple(
        QuestionText(
            id=item.id,
            question=item.question,
            choices=item.choices,
            answer_index=item.answer_index,
        )
        for item in items
        if item.id in differing
    )


def tokenise(item: ChoiceItem, tokenizer: Any) -> TokenTree:
    """Tokenise as lm-evaluation-harness does: a choice is what it adds to the question's ids.

    Without special tokens: a base whose tokenizer begins texts with one gets none.

    Raises WorkError("platform") for an item of more than `ITEM_TOKENS_MAX` tokens.
    """
    context = QUESTION.format(question=item.question)
    question = tokenizer(context, add_special_tokens=False).input_ids
    whole = [
        tokenizer(f"{context} {choice}", add_special_tokens=False).input_ids
        for choice in item.choices
    ]
    tree = TokenTree(
        tuple(question),
        tuple(tuple(ids[len(question) :]) for ids in whole),
        tuple(len(choice.encode()) for choice in item.choices),
    )
    if tree.tokens > ITEM_TOKENS_MAX or not all(tree.choices):
        raise WorkError(
            "platform",
            f"item {item.id}: {tree.tokens} tokens, at most {ITEM_TOKENS_MAX} are scored",
            "Shorten the item.",
        )
    return tree


def pick(
    model: Any, trees: Sequence[TokenTree], *, between: Callable[[int], None] = lambda done: None
) -> list[int]:
    """For each item the choice with the greatest log-likelihood per byte.

    An item whose likelihoods are not all finite has `NO_CHOICE`: a comparison with NaN picks any.
    `between` is a callback: after each row it gets the number of items that are done.
    """
    picked = [0] * len(trees)
    done = 0
    for group in _rows(trees):
        scores = _score(model, [trees[index] for index in group])
        for index, values in zip(group, scores, strict=True):
            per_byte = [v / b for v, b in zip(values, trees[index].choice_bytes, strict=True)]
            usable = all(map(isfinite, per_byte))
            picked[index] = per_byte.index(max(per_byte)) if usable else NO_CHOICE
        done += len(group)
        between(done)
    return picked


def _rows(trees: Sequence[TokenTree]) -> Iterator[list[int]]:
    """Items in their order, as many to a row as fit."""
    row: list[int] = []
    tokens = 0
    for index, tree in enumerate(trees):
        if row and tokens + tree.tokens > ROW_TOKENS:
            yield row
            row, tokens = [], 0
        row.append(index)
        tokens += tree.tokens
    if row:
        yield row


def _score(model: Any, trees: Sequence[TokenTree]) -> list[list[float]]:
    """Log-likelihood of every choice of every item, in nats."""
    row = _lay_out(trees)
    device = next(model.parameters()).device
    columns, column_of = torch.unique(row.before, return_inverse=True)
    with torch.no_grad():
        logits = model(
            input_ids=row.ids.unsqueeze(0).to(device),
            position_ids=row.positions.unsqueeze(0).to(device),
            attention_mask=row.mask.to(device),
            logits_to_keep=columns.to(device),
            use_cache=False,
        ).logits[0]
    logs = torch.log_softmax(logits.float(), dim=-1).cpu()
    values: list[float] = logs[column_of, row.targets].double().tolist()
    cuts = pairwise(accumulate(row.lengths, initial=0))
    sums = iter([sum(values[start:end]) for start, end in cuts])
    return [[next(sums) for _ in tree.choices] for tree in trees]


@dataclass(frozen=True)
class ChoiceRow:
    """Tensors of one row: ids and positions int64 [tokens], mask bool [1, 1, tokens, tokens].

    `targets` are the choices' tokens, `before` the column that predicts each, `lengths` the number
    of tokens of each choice.
    """

    ids: Tensor
    positions: Tensor
    mask: Tensor
    targets: Tensor
    before: Tensor
    lengths: tuple[int, ...]


def _lay_out(trees: Sequence[TokenTree]) -> ChoiceRow:
    ids: list[int] = []
    positions: list[int] = []
    item_of: list[int] = []
    branch_of: list[int] = []  # 0: the question, which every choice sees
    before: list[int] = []
    for number, tree in enumerate(trees):
        end = len(ids) + len(tree.question) - 1
        for branch, tokens in enumerate((tree.question, *tree.choices)):
            first = len(tree.question) if branch else 0
            if branch:
                before += [end, *range(len(ids), len(ids) + len(tokens) - 1)]
            ids += tokens
            positions += range(first, first + len(tokens))
            item_of += [number] * len(tokens)
            branch_of += [branch] * len(tokens)
    item, branch_ = torch.tensor(item_of), torch.tensor(branch_of)
    same_item = item[:, None] == item[None, :]
    visible = (branch_[None, :] == 0) | (branch_[:, None] == branch_[None, :])
    mask = (same_item & visible).tril()
    flat = [choice for tree in trees for choice in tree.choices]
    return ChoiceRow(
        ids=torch.tensor(ids),
        positions=torch.tensor(positions),
        mask=mask[None, None],
        targets=torch.tensor(list(chain.from_iterable(flat))),
        before=torch.tensor(before),
        lengths=tuple(map(len, flat)),
    )


def _bad(path: Path, line: int, what: str) -> WorkError:
    return WorkError("platform", f"{path.name}, line {line}: {what}", "Correct the items file.")
