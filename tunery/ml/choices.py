"""Multiple-choice items scored in shared rows: what several begin with is read once.

A row is a tree of tokens: questions branch where they differ, and into their choices. A token
attends to those on its way from the root, and its position is their number. So one forward pass
scores what would be items × choices passes, with the same numbers. The last token of a choice is
predicted and never read. What the questions of a group begin with, as examples do, is read once for
all its rows. Both sides are read in one pass where they share their weights.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec
import torch
from msgspec import Struct
from torch import Tensor

from tunery.ml.sides import Beginning, Sides
from tunery.work.exits import WorkError
from tunery.work.scores import NO_CHOICE, ItemScore, QuestionText

ROW_TOKENS = 512
ITEM_TOKENS_MAX = 2_048
CHOICES_MAX = 16
ROOT = -1  # the parent of a token that begins a text
SAVED_MIN = 32  # tokens of a group that need not be read: a pass of its own costs as much
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
        """How many are read."""
        return len(self.question) + sum(len(choice) - 1 for choice in self.choices)


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


def tokenise(item: ChoiceItem, tokenizer: Any, examples: str = "") -> TokenTree:
    """Tokenise as lm-evaluation-harness does: a choice is what it adds to the question's ids.

    examples: text before the question

    Without special tokens: a base whose tokenizer begins texts with one gets none.

    Raises WorkError("platform") for an item of more than `ITEM_TOKENS_MAX` tokens.
    """
    context = examples + QUESTION.format(question=item.question)
    tree = tree_of(tokenizer, context, item.choices, add_special_tokens=False)
    if tree.tokens > ITEM_TOKENS_MAX or not all(tree.choices):
        raise WorkError(
            "platform",
            f"item {item.id}: {tree.tokens} tokens, at most {ITEM_TOKENS_MAX} are scored",
            "Shorten the item.",
        )
    return tree


def tree_of(tokenizer: Any, context: str, choices: Sequence[str], **options: bool) -> TokenTree:
    """The tokens of a question and its choices, each after a space. options: of the tokenizer."""
    question = tokenizer(context, **options).input_ids
    whole = [tokenizer(f"{context} {choice}", **options).input_ids for choice in choices]
    return TokenTree(
        tuple(question),
        tuple(tuple(ids[len(question) :]) for ids in whole),
        tuple(len(choice.encode()) for choice in choices),
    )


def pick(
    sides: Sides, trees: Sequence[TokenTree], *, between: Callable[[int], None] = lambda done: None
) -> list[list[int]]:
    """For each side and item the choice with the greatest log-likelihood per byte.

    An item whose likelihoods are not all finite has `NO_CHOICE`: a comparison with NaN picks any.
    `between` is a callback: after each row it gets the number of items that are done.
    """
    return picked_of(likelihoods(sides, trees, between=between), trees)


def picked_of(
    scores: Sequence[Sequence[Sequence[float]]], trees: Sequence[TokenTree]
) -> list[list[int]]:
    """Pick as `pick` does, from log-likelihoods by side, item and choice."""
    picked = []
    for of_side in scores:
        per_byte = [
            [value / size for value, size in zip(values, tree.choice_bytes, strict=True)]
            for values, tree in zip(of_side, trees, strict=True)
        ]
        picked.append(
            [
                values.index(max(values)) if all(map(isfinite, values)) else NO_CHOICE
                for values in per_byte
            ]
        )
    return picked


def likelihoods(
    sides: Sides,
    trees: Sequence[TokenTree],
    groups: Sequence[Sequence[int]] | None = None,
    *,
    between: Callable[[int], None] = lambda done: None,
) -> list[list[list[float]]]:
    """Log-likelihoods in nats: for each side, item and choice.

    groups: numbers of the items whose questions begin alike; None: all are one group
    between: gets the number of items that are done, after each row
    """
    scores: list[list[list[float]]] = [[[] for _ in trees] for _ in range(sides.count)]
    done = 0
    for group in [range(len(trees))] if groups is None else groups:
        shared = _shared([trees[index].question for index in group])
        beginning = None
        if shared * sum(1 for _ in _rows(trees, group)) >= SAVED_MIN + shared:
            beginning = sides.read(trees[group[0]].question[:shared])
        for row in _rows(trees, group, 0 if beginning is None else shared):
            for side, values in enumerate(_score(sides, row, beginning)):
                for index, value in zip(row.items, values, strict=True):
                    scores[side][index] = value
            done += len(row.items)
            between(done)
    return scores


def _shared(questions: Sequence[Sequence[int]]) -> int:
    """How many tokens all of them begin with; the last of each, which predicts, is not shared."""
    alike = takewhile(lambda column: len(set(column)) == 1, zip(*questions, strict=False))
    return min(sum(1 for _ in alike), min(map(len, questions), default=1) - 1)


class ChoiceRow:
    """Items as one tree of tokens, each after its parent. read: how many come before all of them.

    items: their numbers
    ids: the tokens that are read
    targets: tokens of choices, each predicted by the token that `before` numbers
    """

    def __init__(self, read: int) -> None:
        self._read = read
        self._numbers: dict[tuple[int, int], int] = {}  # of a token after its parent
        self._parents: list[int] = []
        self._depths: list[int] = []
        self._lengths: list[list[int]] = []
        self.items: list[int] = []
        self.ids: list[int] = []
        self.targets: list[int] = []
        self.before: list[int] = []

    def add(self, index: int, tree: TokenTree) -> None:
        """Add what the row does not have yet. index: the item's number."""
        end = ROOT
        for token in tree.question[self._read :]:
            end = self._number(end, token)
        for choice in tree.choices:
            self.before.append(end)
            for token in choice[:-1]:
                self.before.append(self._number(self.before[-1], token))
            self.targets += choice
        self.items.append(index)
        self._lengths.append([len(choice) for choice in tree.choices])

    def _number(self, parent: int, token: int) -> int:
        number = self._numbers.setdefault((parent, token), len(self.ids))
        if number == len(self.ids):
            self.ids.append(token)
            self._parents.append(parent)
            self._depths.append(self._read if parent == ROOT else self._depths[parent] + 1)
        return number

    def positions(self) -> Tensor:
        """How many tokens come before each, int64 [tokens]."""
        return torch.tensor(self._depths)

    def mask(self) -> Tensor:
        """Return the mask by which tokens see their ancestors and themselves.

        bool [1, 1, tokens, all].
        """
        tokens = len(self.ids)
        mask = torch.zeros((tokens, self._read + tokens), dtype=torch.bool)
        mask[:, : self._read] = True
        for number, parent in enumerate(self._parents):
            if parent != ROOT:
                mask[number] = mask[parent]
            mask[number, self._read + number] = True
        return mask[None, None]

    def sums(self, values: Sequence[float]) -> list[list[float]]:
        """Sums over the tokens of each choice of each item. values: of the targets."""
        rest = iter(values)
        return [[sum(islice(rest, length)) for length in item] for item in self._lengths]


def _rows(trees: Sequence[TokenTree], group: Sequence[int], read: int = 0) -> Iterator[ChoiceRow]:
    """Items in their order, as many to a row as fit; `read` tokens of each are read already."""
    row = ChoiceRow(read)
    for index in group:
        if row.items and len(row.ids) + trees[index].tokens - read > ROW_TOKENS:
            yield row
            row = ChoiceRow(read)
        row.add(index, trees[index])
    if row.items:
        yield row


def _score(sides: Sides, row: ChoiceRow, beginning: Beginning | None) -> list[list[list[float]]]:
    """Log-likelihood of every choice of every item of a row for each side, in nats."""
    columns, column_of = torch.unique(torch.tensor(row.before), return_inverse=True)
    logits = sides.logits(torch.tensor(row.ids), row.positions(), row.mask(), columns, beginning)
    result = []
    for of_side in logits:
        logs = torch.log_softmax(of_side.float(), dim=-1).cpu()
        result.append(row.sums(logs[column_of, torch.tensor(row.targets)].double().tolist()))
    return result


def _bad(path: Path, line: int, what: str) -> WorkError:
    return WorkError("platform", f"{path.name}, line {line}: {what}", "Correct the items file.")
