"""Tokenises rows in chunks, each stored in a file, so that an interrupted run can be resumed.

The rows of a chunk depend on the input alone, so every run writes the same bytes for it.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

import msgspec
from msgspec import Struct

from schemas.dataset import LengthPolicy, RowKind
from tunery.data.containers.row import Row
from tunery.data.dialects.conversation import Conversation
from tunery.data.dialects.parsing import Object
from tunery.data.findings.finding import Collector, Note
from tunery.data.findings.limits import CHUNK_CHARS, CHUNK_ROWS, ENCODE_CHARS, ENCODE_ROWS
from tunery.data.tokens.chat_renderer import Rendered
from tunery.data.tokens.length_policy import fit_answers
from tunery.data.tokens.shards import ANSWER, CHOSEN, PROMPT, REJECTED, UNWANTED, WANTED, Document
from tunery.data.tokens.tokenizer import Encoded, Tokenizer


class SelectedRow(Struct, frozen=True):
    """A valid row that is to be tokenised."""

    row: Row  # the row as read
    conversation: Conversation  # what it became
    validates: bool  # whether it belongs to the validation split


class TokenisedRow(Struct, frozen=True, array_like=True):
    """A row as token sequences."""

    documents: list[Document]  # its sequences: one, several when it was split, the two of a pair
    validates: bool  # whether it belongs to the validation split
    cut: bool  # whether it was truncated
    # its line of validation.jsonl; empty for training rows, plain text, cut rows and answers that
    # are not wanted
    prompt: bytes


def split_into_chunks(rows: Iterable[SelectedRow]) -> Iterator[list[SelectedRow]]:
    """Group rows into chunks of `CHUNK_ROWS` rows, or fewer when they have many characters."""
    chunk: list[SelectedRow] = []
    chars = 0
    for selected in rows:
        chunk.append(selected)
        conversation = selected.conversation
        chars += sum(
            len(message["content"])
            for message in chain(conversation.messages, conversation.rejected or ())
        )
        if len(chunk) >= CHUNK_ROWS or chars >= CHUNK_CHARS:
            yield chunk
            chunk, chars = [], 0
    if chunk:
        yield chunk


class ChunkTokeniser:
    """Tokenises chunks of rows and keeps the results in files of `folder`.

    Rows that cannot be tokenised are added to `refused`.

    rows: what the training method learns from
    reused: chunks that an earlier run had already tokenised
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: int,
        length_policy: LengthPolicy,
        folder: Path,
        refused: Collector,
        rows: RowKind = "answers",
    ) -> None:
        self.reused = 0
        self._rows = rows
        self._tokenizer = tokenizer
        self._max_length = max_length
        self._length_policy = length_policy
        self._folder = folder
        self._refused = refused

    def tokenise(self, name: str, rows: Sequence[SelectedRow]) -> list[TokenisedRow]:
        """Tokenise a chunk, or load it from its file. Returns the usable rows in order.

        `name` is the name of the file, unique within a run.
        """
        path = self._folder / name
        try:
            chunk = msgspec.msgpack.decode(path.read_bytes(), type=list[TokenisedRow])
        except (FileNotFoundError, msgspec.MsgspecError):
            chunk = self._tokenise(rows)
            if not self._refused.count("error"):  # else the run ends without a result
                write_atomically(path, msgspec.msgpack.encode(chunk))
        else:
            self.reused += 1
        return chunk

    def _tokenise(self, rows: Sequence[SelectedRow]) -> list[TokenisedRow]:
        done: list[TokenisedRow] = []
        waiting: list[tuple[SelectedRow, Sequence[Rendered]]] = []
        chars = 0
        for selected in rows:
            texts = render_answers(self._tokenizer, selected.conversation)
            if isinstance(texts, Note):
                self._refuse(selected.row, texts)
                continue
            waiting.append((selected, texts))
            chars += sum(len(rendered.text) for rendered in texts)
            if len(waiting) >= ENCODE_ROWS or chars >= ENCODE_CHARS:
                done.extend(self._encode(waiting))
                waiting, chars = [], 0
        done.extend(self._encode(waiting))
        return done

    def _encode(
        self, waiting: Sequence[tuple[SelectedRow, Sequence[Rendered]]]
    ) -> Iterator[TokenisedRow]:
        encoded = iter(self._tokenizer.encode([text for _, texts in waiting for text in texts]))
        for selected, texts in waiting:
            tokens = list(islice(encoded, len(texts)))
            fitted = fit_answers(tokens, self._max_length, self._length_policy)
            if isinstance(fitted, Note):
                self._refuse(selected.row, fitted)
                continue
            whole = fitted[0] is tokens[0]
            item = selected.conversation.item
            is_reference = (
                not selected.conversation.plain
                and selected.conversation.label is not False
                and item is None
            )
            has_prompt = selected.validates and whole and is_reference
            prompt = _prompt_line(selected.row, tokens[0], self._tokenizer) if has_prompt else b""
            roles = self._roles(selected.conversation, len(fitted))
            yield TokenisedRow(
                [
                    Document.from_tokens(tokens, role, b"" if item is None else encode_item(item))
                    for tokens, role in zip(fitted, roles, strict=True)
                ],
                selected.validates,
                cut=self._length_policy == "truncate"
                and any(after is not before for after, before in zip(fitted, tokens, strict=False)),
                prompt=prompt,
            )

    def _roles(self, conversation: Conversation, sequences: int) -> tuple[int, ...]:
        if conversation.item is not None:
            return (PROMPT,) * sequences
        if conversation.label is not None:
            return (WANTED if conversation.label else UNWANTED,) * sequences
        if conversation.rejected is None:
            return (ANSWER,) * sequences
        return (WANTED, UNWANTED) if self._rows == "labels" else (CHOSEN, REJECTED)

    def _refuse(self, row: Row, note: Note) -> None:
        self._refused.add(note.to_finding(row.number, row.line))


def render_answers(tokenizer: Tokenizer, conversation: Conversation) -> Sequence[Rendered] | Note:
    """The texts that a row gives: its conversation, and the one with the rejected answer."""
    rejected = conversation.rejected_conversation()
    texts: list[Rendered] = []
    for answer in (conversation,) if rejected is None else (conversation, rejected):
        rendered = tokenizer.render(answer)
        if isinstance(rendered, Note):
            return rendered
        texts.append(rendered if conversation.item is None else without_answer(rendered))
    return texts


def without_answer(rendered: Rendered) -> Rendered:
    """Cut a rendered conversation off where its last answer begins.

    The last character before the cut is marked, to locate the beginning of the answer.
    """
    end = rendered.turn
    plain = tuple(span for span in rendered.plain if span[1] <= end)
    return Rendered(rendered.text[:end], ((max(0, end - 1), end),), plain, end)


def encode_item(item: Object) -> bytes:
    """Fields of a row as JSON, as the grader reads them."""
    return msgspec.json.encode(item)


def _prompt_line(row: Row, tokens: Encoded, tokenizer: Tokenizer) -> bytes:
    """One line of `validation.jsonl`: the last trained answer, and everything before it.

    `prompt_ids` are the token ids of the prompt, because encoding `prompt` again would treat
    special tokens that the user wrote as special. `reference` is everything the model has to write,
    such as its reasoning, without special tokens: what a generated text is compared with.
    """
    end = tokens.mask.rindex(1)
    start = tokens.mask.rfind(0, 0, end) + 1
    line = {
        "row": row.number,
        "prompt": tokens.rendered.text[: tokens.rendered.turn],
        "prompt_ids": tokens.ids[:start],
        "reference": tokenizer.decode(tokens.ids[start : end + 1], special=False).strip(),
    }
    return msgspec.json.encode(line) + b"\n"


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file completely or not at all, even when several processes write the same file."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    with part.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    part.replace(path)
