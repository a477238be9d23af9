"""Multiple-choice items scored in shared rows: each question is read once for all its choices.

A row holds whole items. A token attends to its item's question, and to what comes before it in its
own choice; positions restart accordingly. So one forward pass scores what would be
items × choices passes, with the same numbers. The last token of a choice is predicted and never
read. What the questions of a group begin with, as examples do, is read once for the group. Both
sides are read in one pass where they share their weights.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise, takewhile
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
    """The same for likelihoods of each side, item and choice."""
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
        if shared * (len(group) - 1) >= SAVED_MIN:
            beginning = sides.read(trees[group[0]].question[:shared])
        skipped = 0 if beginning is None else shared
        for row in _rows(trees, group, skipped):
            of_row = _score(sides, [trees[index] for index in row], beginning)
            for side, values in enumerate(of_row):
                for index, value in zip(row, values, strict=True):
                    scores[side][index] = value
            done += len(row)
            between(done)
    return scores


def _shared(questions: Sequence[Sequence[int]]) -> int:
    """How many tokens all of them begin with; the last of each, which predicts, is not shared."""
    alike = takewhile(lambda column: len(set(column)) == 1, zip(*questions, strict=False))
    return min(sum(1 for _ in alike), min(map(len, questions), default=1) - 1)


def _rows(
    trees: Sequence[TokenTree], group: Sequence[int], skipped: int = 0
) -> Iterator[list[int]]:
    """Items in their order, as many to a row as fit; `skipped` tokens of each are read already."""
    row: list[int] = []
    tokens = 0
    for index in group:
        own = trees[index].tokens - skipped
        if row and tokens + own > ROW_TOKENS:
            yield row
            row, tokens = [], 0
        row.append(index)
        tokens += own
    if row:
        yield row


def _score(
    sides: Sides, trees: Sequence[TokenTree], beginning: Beginning | None = None
) -> list[list[list[float]]]:
    """Log-likelihood of every choice of every item for each side, in nats."""
    row = _lay_out(trees, 0 if beginning is None else beginning.tokens)
    columns, column_of = torch.unique(row.before, return_inverse=True)
    logits = sides.logits(row.ids, row.positions, row.mask, columns, beginning)
    result = []
    for of_side in logits:
        logs = torch.log_softmax(of_side.float(), dim=-1).cpu()
        values: list[float] = logs[column_of, row.targets].double().tolist()
        cuts = pairwise(accumulate(row.lengths, initial=0))
        sums = iter([sum(values[start:end]) for start, end in cuts])
        result.append([[next(sums) for _ in tree.choices] for tree in trees])
    return result


@dataclass(frozen=True)
class ChoiceRow:
    """One row: ids and positions int64 [tokens], mask bool [1, 1, tokens, read + tokens].

    `targets` are the choices' tokens, `before` the column that predicts each, `lengths` the number
    of tokens of each choice.
    """

    ids: Tensor
    positions: Tensor
    mask: Tensor
    targets: Tensor
    before: Tensor
    lengths: tuple[int, ...]


def _lay_out(trees: Sequence[TokenTree], read: int = 0) -> ChoiceRow:
    """One row of items; their first `read` tokens, which all share, are not in it."""
    ids: list[int] = []
    positions: list[int] = []
    item_of: list[int] = []
    branch_of: list[int] = []  # 0: the question, which every choice sees
    before: list[int] = []
    for number, tree in enumerate(trees):
        end = len(ids) + len(tree.question) - read - 1
        for branch, tokens in enumerate((tree.question[read:], *tree.choices)):
            first = len(tree.question) if branch else read
            inputs = tokens[:-1] if branch else tokens
            if branch:
                before += [end, *range(len(ids), len(ids) + len(inputs))]
            ids += inputs
            positions += range(first, first + len(inputs))
            item_of += [number] * len(inputs)
            branch_of += [branch] * len(inputs)
    item, branch_ = torch.tensor(item_of), torch.tensor(branch_of)
    same_item = item[:, None] == item[None, :]
    visible = (branch_[None, :] == 0) | (branch_[:, None] == branch_[None, :])
    mask = torch.nn.functional.pad((same_item & visible).tril(), (read, 0), value=True)
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
