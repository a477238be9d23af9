"""Packed rows of the prepared cache, and the batches made of them.

A shard is a safetensors file with `input_ids` int32 [total], `loss_mask` uint8 [total] (1: this
token is a label), `seq_lengths` int32 [n_sequences] and `row_lengths` int32 [n_rows] (sequences in
each packed row). Sequences never cross rows. Where rows are pairs there is `seq_roles` uint8
[n_sequences], too: 1 for the preferred answer, 2 for the other one, which follows it in its row.
Where each answer has a label, it is 3 for a true and 4 for a false one. Of prompts it is 5: their
last token is the label, and `item_bytes` uint8 has what a grader reads of each, as JSON, of
`item_lengths` int32 [n_sequences] bytes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

import torch
from safetensors.torch import load_file
from torch import Tensor

from schemas.dataset import RowKind
from tunery.ml.order import sample_rows
from tunery.plan.time import GRADED_ROWS_MAX
from tunery.work.exits import WorkError

IGNORED = -100  # label of a token that carries no loss
TENSORS = {
    "input_ids": torch.int32,
    "loss_mask": torch.uint8,
    "seq_lengths": torch.int32,
    "row_lengths": torch.int32,
}
ROLES: Final = "seq_roles"
CHOSEN: Final = 1
REJECTED: Final = 2
WANTED: Final = 3
UNWANTED: Final = 4
PROMPT: Final = 5
ITEM_LENGTHS: Final = "item_lengths"
ITEM_BYTES: Final = "item_bytes"
MISMATCHED: Final = "mismatched_"  # before the names of tensors of a batch


@dataclass(frozen=True)
class PackedRow:
    """One packed row: token ids int32 [tokens], and its sequences' lengths."""

    input_ids: Tensor
    # bool [tokens]. A sequence's first token is never a label: what comes before it in the row is
    # another document.
    is_label: Tensor
    lengths: tuple[int, ...]
    # roles of its sequences, CHOSEN and REJECTED in turn, or WANTED and UNWANTED in any order;
    # empty: they are learnt by themselves
    roles: tuple[int, ...] = ()
    # float32 [references], log-probability of each answer before training; of answers with labels
    # those that are mismatched follow; None: not known
    reference: Tensor | None = None
    items: tuple[bytes, ...] = ()  # data of each prompt for a grader, as JSON

    @property
    def labels(self) -> Tensor:
        """int64 [tokens]: `input_ids` where they are labels, else -100. Made when it is needed."""
        return torch.where(self.is_label, self.input_ids.long(), IGNORED)

    @property
    def has_labels(self) -> bool:
        return bool(self.roles) and self.roles[0] in (WANTED, UNWANTED)

    @property
    def references(self) -> int:
        """How many log-probabilities are compared with."""
        return len(self.lengths) * (2 if self.has_labels else 1)

    def mismatched(self) -> "PackedRow":
        """Each prompt with the answer of the sequence before it, that of the last for the first."""
        prompts, answers = [], []
        texts = zip(
            torch.split(self.input_ids, list(self.lengths)),
            torch.split(self.is_label, list(self.lengths)),
            strict=True,
        )
        for ids, is_label in texts:
            begins = int(is_label.int().argmax()) if bool(is_label.any()) else len(ids)
            prompts.append((ids[:begins], is_label[:begins]))
            answers.append((ids[begins:], is_label[begins:]))
        moved = list(zip(prompts, answers[-1:] + answers[:-1], strict=True))
        return PackedRow(
            torch.cat([part[0] for pair in moved for part in pair]),
            torch.cat([part[1] for pair in moved for part in pair]),
            tuple(len(prompt[0]) + len(answer[0]) for prompt, answer in moved),
            self.roles,
        )


class PackedRows:
    """All rows of some shards, in their order."""

    def __init__(self, rows: Sequence[PackedRow]) -> None:
        self.rows = tuple(rows)
        self.row_tokens = tuple(sum(row.lengths) for row in self.rows)
        self.n_sequences = sum(len(row.lengths) for row in self.rows)
        self.n_labels = sum(int(row.is_label.sum()) for row in self.rows)
        self.n_references = sum(row.references for row in self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def longest(self, count: int) -> list[int]:
        """Numbers of the `count` rows with the most tokens."""
        order = sorted(range(len(self)), key=lambda row: (-self.row_tokens[row], row))
        return order[:count]

    @property
    def kind(self) -> RowKind:
        """Kind of the rows: labels, prompts, pairs or answers."""
        if any(row.has_labels for row in self.rows):
            return "labels"
        if any(row.items for row in self.rows):
            return "prompts"
        return "pairs" if any(row.roles for row in self.rows) else "answers"

    def with_reference(self, logps: Tensor) -> "PackedRows":
        """The rows with log-probabilities, float32 [n_references], of their answers."""
        parts = torch.split(logps, [row.references for row in self.rows])
        return PackedRows(
            [replace(row, reference=part) for row, part in zip(self.rows, parts, strict=True)]
        )

    def sample(self, size: int) -> "PackedRows":
        """At most `size` of the rows, chosen by a hash of their numbers; of prompts fewer, as each
        has to be answered.
        """
        size = min(size, GRADED_ROWS_MAX) if self.kind == "prompts" else size
        return PackedRows([self.rows[number] for number in sample_rows(len(self), size)])

    def batch(self, indices: Sequence[int]) -> dict[str, Tensor]:
        """`input_ids`, `labels`, `position_ids`, each int64 [rows, longest].

        Of pairs also `sequences`, of the same form: the number of each token's answer in the batch;
        `is_text`, false for padding; `roles` int64 [answers] and, once it is known, `reference`
        float32 [answers]. Of answers with labels, the same of those that are mismatched, with
        `MISMATCHED` before their names, and `lines` int64 [answers], the row that each is in. Of
        prompts `item_lengths` int64 [prompts] and `item_bytes` uint8, as in the shard.

        There is no attention mask on purpose: transformers keeps documents apart only when it is
        absent and `position_ids` restart. Padding is its own document without labels.
        """
        chosen = [self.rows[index] for index in indices]
        batch = _batch(chosen)
        if items := [item for row in chosen for item in row.items]:
            batch[ITEM_LENGTHS] = torch.tensor([len(item) for item in items])
            batch[ITEM_BYTES] = torch.tensor(list(b"".join(items)), dtype=torch.uint8)
        if not any(row.has_labels for row in chosen):
            return batch
        others = _batch([row.mismatched() for row in chosen])
        lines = [line for line, row in enumerate(chosen) for _ in row.lengths]
        batch |= {MISMATCHED + name: tensor for name, tensor in others.items()}
        references = [row.reference for row in chosen if row.reference is not None]
        if references:
            halves = [torch.chunk(reference, 2) for reference in references]
            batch["reference"] = torch.cat([half for half, _ in halves])
            batch[MISMATCHED + "reference"] = torch.cat([half for _, half in halves])
        return batch | {"lines": torch.tensor(lines)}


def _batch(chosen: Sequence[PackedRow]) -> dict[str, Tensor]:
    """Stack and pad rows into the tensors of `PackedRows.batch` that all kinds have."""
    width = max(len(row.input_ids) for row in chosen)
    input_ids = torch.zeros(len(chosen), width, dtype=torch.int64)
    labels = torch.full((len(chosen), width), IGNORED, dtype=torch.int64)
    position_ids = torch.zeros(len(chosen), width, dtype=torch.int64)
    for line, row in enumerate(chosen):
        tokens = len(row.input_ids)
        input_ids[line, :tokens] = row.input_ids
        labels[line, :tokens] = row.labels
        lengths = (*row.lengths, width - tokens)
        position_ids[line] = torch.cat([torch.arange(length) for length in lengths])
    batch = {"input_ids": input_ids, "labels": labels, "position_ids": position_ids}
    return batch | _answers(chosen, width) if any(row.roles for row in chosen) else batch


def _answers(rows: Sequence[PackedRow], width: int) -> dict[str, Tensor]:
    """Return the tensors that `PackedRows.batch` adds for pairs, and for answers with labels."""
    sequences = torch.zeros(len(rows), width, dtype=torch.int64)
    is_text = torch.zeros(len(rows), width, dtype=torch.bool)
    first = 0
    for line, row in enumerate(rows):
        numbers = torch.arange(first, first + len(row.lengths))
        sequences[line, : sum(row.lengths)] = numbers.repeat_interleave(torch.tensor(row.lengths))
        is_text[line, : sum(row.lengths)] = True
        first += len(row.lengths)
    added = {
        "sequences": sequences,
        "is_text": is_text,
        "roles": torch.tensor([role for row in rows for role in row.roles]),
    }
    references = [row.reference for row in rows if row.reference is not None]
    return added | {"reference": torch.cat(references)} if references else added


def mismatched(batch: dict[str, Tensor]) -> dict[str, Tensor] | None:
    """The batch of prompts with the answers of others; None where rows have no labels."""
    others = {
        name.removeprefix(MISMATCHED): tensor
        for name, tensor in batch.items()
        if name.startswith(MISMATCHED)
    }
    return others or None


def documents(batch: dict[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """The documents of a batch that have labels, each in its own row.

    Those of one length are one batch: nothing is padded.
    """
    by_length: dict[int, list[tuple[int, int]]] = {}
    for line, positions in enumerate(batch["position_ids"]):
        starts = (positions == 0).nonzero().squeeze(1).tolist()
        for start, end in pairwise([*starts, len(positions)]):
            if bool((batch["labels"][line, start:end] != IGNORED).any()):
                by_length.setdefault(end - start, []).append((line, start))
    for length, begins in by_length.items():
        yield {
            name: torch.stack([tensor[line, start : start + length] for line, start in begins])
            for name, tensor in batch.items()
            if tensor.dim() == 2  # of tokens, not of answers
        }


def read_rows(paths: Sequence[str], *, vocabulary: int, all_labels: bool = False) -> PackedRows:
    """Read and check shards. `all_labels`: every token is one, but the first of a sequence.

    Raises `WorkError("bad_data")` naming the file and what is wrong with it.
    """
    rows: list[PackedRow] = []
    for name in paths:
        path = Path(name)
        rows.extend(_rows_of(path, _tensors(path), vocabulary, all_labels))
    if not rows:
        raise _bad(Path(paths[0]) if paths else Path("shards"), "it holds no rows")
    return PackedRows(rows)


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        tensors = load_file(path)
    except Exception as error:  # safetensors raises its own untyped errors for damaged files
        raise _bad(path, f"it cannot be read ({error})") from error
    for name, dtype in TENSORS.items():
        if name not in tensors:
            raise _bad(path, f"tensor {name!r} is missing")
        if tensors[name].dtype != dtype or tensors[name].dim() != 1:
            actual = f"{tensors[name].dtype} {list(tensors[name].shape)}"
            raise _bad(path, f"tensor {name!r} is {actual}, not {dtype} of one dimension")
    return tensors


def _roles(path: Path, tensors: dict[str, Tensor]) -> list[int]:
    """The role of each sequence; empty where they have none."""
    if ROLES not in tensors:
        return []
    roles: list[int] = tensors[ROLES].tolist()
    if len(roles) == len(tensors["seq_lengths"]) and (
        set(roles) <= {WANTED, UNWANTED} or set(roles) == {PROMPT}
    ):
        return roles
    in_pairs = [CHOSEN, REJECTED] * (len(tensors["seq_lengths"]) // 2)
    if roles != in_pairs or bool((tensors["row_lengths"] % 2).any()):
        raise _bad(path, f"tensor {ROLES!r} does not make pairs")
    return roles


def _items(path: Path, tensors: dict[str, Tensor], roles: list[int]) -> list[bytes]:
    """Return the grader's input for each prompt; empty if the rows are not prompts."""
    if PROMPT not in roles:
        return []
    lengths, joined = tensors.get(ITEM_LENGTHS), tensors.get(ITEM_BYTES)
    if lengths is None or joined is None or len(lengths) != len(roles):
        raise _bad(path, "prompts have nothing that a grader could read")
    if int(lengths.sum()) != len(joined) or int(lengths.min()) < 1:
        raise _bad(path, f"tensor {ITEM_LENGTHS!r} does not add up")
    return [bytes(part.tolist()) for part in torch.split(joined, lengths.tolist())]


def _rows_of(
    path: Path, tensors: dict[str, Tensor], vocabulary: int, all_labels: bool
) -> list[PackedRow]:
    """Views of the file's ids and of one byte a token: a file may have hundreds of millions."""
    ids, is_label = tensors["input_ids"], tensors["loss_mask"].bool()
    lengths: list[int] = tensors["seq_lengths"].tolist()
    counts: list[int] = tensors["row_lengths"].tolist()
    if len(is_label) != len(ids) or sum(lengths) != len(ids) or sum(counts) != len(lengths):
        raise _bad(path, "lengths do not add up")
    if min(lengths, default=1) < 1 or min(counts, default=1) < 1:
        raise _bad(path, "a length below 1")
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < vocabulary:
        raise _bad(path, f"token ids outside 0 to {vocabulary - 1}")
    if all_labels:
        is_label.fill_(True)
    starts = torch.tensor([0, *lengths]).cumsum(0)
    is_label[starts[:-1]] = False
    roles = _roles(path, tensors)
    items = _items(path, tensors, roles)
    edges = torch.tensor([0, *counts]).cumsum(0).tolist()
    rows = []
    for first, last in pairwise(edges):
        span = slice(int(starts[first]), int(starts[last]))
        rows.append(
            PackedRow(
                ids[span],
                is_label[span],
                tuple(lengths[first:last]),
                tuple(roles[first:last]),
                items=tuple(items[first:last]),
            )
        )
    return rows


def _bad(path: Path, what: str) -> WorkError:
    return WorkError("bad_data", f"{path.name}: {what}", "Prepare the dataset again.")
