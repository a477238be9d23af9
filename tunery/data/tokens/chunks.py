"""Tokenised rows in files, a piece of the input at a time: a killed run goes on after the last.

Where a piece ends depends on the rows alone, so it holds the same bytes whoever made it and when.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from schemas.dataset import LengthPolicy
from tunery.data.containers.row import Row
from tunery.data.dialects.detection import Conversation
from tunery.data.findings.finding import Collector, Note
from tunery.data.findings.limits import ENCODE_CHARS, ENCODE_ROWS, PIECE_CHARS, PIECE_ROWS
from tunery.data.tokens.length_policy import fit
from tunery.data.tokens.shards import Document
from tunery.data.tokens.tokenizer import Encoded, Rendered, Tokenizer


class Given(Struct, frozen=True):
    """A good row on its way to the tokenizer."""

    row: Row
    conversation: Conversation
    validates: bool


class Tokenised(Struct, frozen=True, array_like=True):
    """A row as sequences: one, or several where it was split.

    `cut`: shortened to the limit. `prompt`: its line of validation.jsonl, when it asks something
    (plain text does not) and is there whole.
    """

    documents: list[Document]
    validates: bool
    cut: bool
    prompt: bytes


def grouped(rows: Iterable[Given]) -> Iterator[list[Given]]:
    """Rows in pieces of `PIECE_ROWS`, or of fewer when they are long."""
    piece: list[Given] = []
    chars = 0
    for given in rows:
        piece.append(given)
        chars += sum(len(message["content"]) for message in given.conversation.messages)
        if len(piece) >= PIECE_ROWS or chars >= PIECE_CHARS:
            yield piece
            piece, chars = [], 0
    if piece:
        yield piece


class PieceMaker:
    """Tokenises pieces into files of `folder`, or finds them there. Refusals go to `refused`."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: int,
        length_policy: LengthPolicy,
        folder: Path,
        refused: Collector,
    ) -> None:
        self.reused = 0
        self._tokenizer = tokenizer
        self._max_length = max_length
        self._length_policy = length_policy
        self._folder = folder
        self._refused = refused

    def make(self, name: str, rows: Sequence[Given]) -> list[Tokenised]:
        """The rows that could be used, in order. `name` tells this piece from others of the run."""
        path = self._folder / name
        try:
            found = msgspec.msgpack.decode(path.read_bytes(), type=list[Tokenised])
        except (FileNotFoundError, msgspec.MsgspecError):
            found = self._tokenised(rows)
            if not self._refused.count("error"):  # else the run ends without result
                write_whole(path, msgspec.msgpack.encode(found))
        else:
            self.reused += 1
        return found

    def _tokenised(self, rows: Sequence[Given]) -> list[Tokenised]:
        done: list[Tokenised] = []
        waiting: list[tuple[Given, Rendered]] = []
        chars = 0
        for given in rows:
            rendered = self._tokenizer.render(given.conversation)
            if isinstance(rendered, Note):
                self._refuse(given.row, rendered)
                continue
            waiting.append((given, rendered))
            chars += len(rendered.text)
            if len(waiting) >= ENCODE_ROWS or chars >= ENCODE_CHARS:
                done.extend(self._encoded(waiting))
                waiting, chars = [], 0
        done.extend(self._encoded(waiting))
        return done

    def _encoded(self, waiting: Sequence[tuple[Given, Rendered]]) -> Iterator[Tokenised]:
        encoded = self._tokenizer.encode([rendered for _, rendered in waiting])
        for (given, _), tokens in zip(waiting, encoded, strict=True):
            fitted = fit(tokens, self._max_length, self._length_policy)
            if isinstance(fitted, Note):
                self._refuse(given.row, fitted)
                continue
            whole = fitted[0] is tokens
            asks = given.validates and whole and not given.conversation.plain
            yield Tokenised(
                [Document.of(each) for each in fitted],
                given.validates,
                cut=not whole and self._length_policy == "truncate",
                prompt=_prompt(given.row, given.conversation, tokens) if asks else b"",
            )

    def _refuse(self, row: Row, note: Note) -> None:
        self._refused.add(note.at(row.number, row.line))


def _prompt(row: Row, conversation: Conversation, tokens: Encoded) -> bytes:
    """One line of `validation.jsonl`: the last learnt answer, and all that stands before it.

    `prompt_ids` are the prompt's token ids: encoding `prompt` again would read special tokens that
    people wrote as special.
    """
    last = max(i for i, trained in enumerate(conversation.trained) if trained)
    end = tokens.mask.rindex(1)
    start = tokens.mask.rfind(0, 0, end) + 1
    line = {
        "row": row.number,
        "prompt": tokens.rendered.text[: tokens.rendered.turn],
        "prompt_ids": tokens.ids[:start],
        "reference": conversation.messages[last]["content"].strip(),
    }
    return msgspec.json.encode(line) + b"\n"


def write_whole(path: Path, content: bytes) -> None:
    """Complete or not at all, whoever else saves the same."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    with part.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    part.replace(path)
