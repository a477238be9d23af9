"""Rows that contain items of a benchmark: runs of n words that both have.

An item is looked for in two forms, the question, and the question with its answer. A form is found
in a row when more than half of its words lie in runs of n words that the same row has too. Forms
shorter than n words must be there whole; a question of fewer than 8 words tells nothing by itself
and counts with its answer only. n = 13 is strict, n = 8 sees changed copies as well.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tunery.data.screening.word_ngrams import I64, U64, Words, blocks, words

Bits: TypeAlias = NDArray[np.uint8]

STRICT_WORDS: Final = 13
LOOSE_WORDS: Final = 8
QUESTION_WORDS_MIN: Final = 8  # fewer ("Which of these is true?") stand in rows of all kinds
FORM_WORDS_MIN: Final = 5  # of question and answer together; shorter items cannot be told
FOUND_PERCENT: Final = 50  # of a form's words; more than this is a finding
FILTER_BITS: Final = 24  # two filters of 2 MiB: 2 % false alarms at two million runs
FILTER_MASK: Final = np.uint64((1 << FILTER_BITS) - 1)


class Item(Struct, frozen=True, kw_only=True):
    """One question of a benchmark: `place` names it (file and row), `answer` may be empty."""

    benchmark: str
    place: str
    question: str
    answer: str = ""


class Overlap(Struct, frozen=True, kw_only=True):
    """Item number `item` is in text number `text`; `percent` of its words are."""

    text: int
    item: int
    percent: int


@dataclass(frozen=True, slots=True)
class _Table:
    """Sorted hashes of runs; the form each is from and the word of the form it begins with."""

    run: U64
    form: I64
    at: I64
    filters: tuple[tuple[np.uint64, Bits], ...]  # shift of a hash, and a bit for what it leaves

    @classmethod
    def of(cls, run: U64, form: I64, at: I64) -> "_Table":
        order = np.argsort(run, kind="stable")
        filters = []
        for shift in (np.uint64(64 - FILTER_BITS), np.uint64(64 - 2 * FILTER_BITS)):
            seen = np.zeros(1 << FILTER_BITS, np.bool_)
            seen[(run >> shift) & FILTER_MASK] = True
            filters.append((shift, np.packbits(seen, bitorder="little")))
        return cls(run[order], form[order], at[order], tuple(filters))

    def find(self, runs: U64) -> tuple[I64, I64]:
        """(place in `runs`, place in the table) of every match."""
        maybe = np.arange(len(runs))
        for shift, bits in self.filters:
            slot = (runs[maybe] >> shift) & FILTER_MASK
            bit = bits[slot >> np.uint64(3)] >> (slot & np.uint64(7)).astype(np.uint8)
            maybe = maybe[np.flatnonzero(bit & np.uint8(1))]
        first = np.searchsorted(self.run, runs[maybe], "left")
        count = np.searchsorted(self.run, runs[maybe], "right") - first
        return np.repeat(maybe, count), np.repeat(first, count) + _counting(count)


class Index:
    """Items of benchmarks, ready to be looked for in texts."""

    def __init__(self, items: Sequence[Item], n: int = STRICT_WORDS) -> None:
        self.n = n
        self.items = tuple(items)
        made = _Forms()
        texts = [text for it in items for text in (it.question, f"{it.question}\n{it.answer}")]
        answered = np.array([bool(it.answer.strip()) for it in items], np.bool_)
        for first, block in (*blocks(texts), (len(texts), ())):
            made.add(words(block), first, n, answered)
        self._item, self._size, self._whole = _columns(made.forms)
        self._long = _Table.of(*_columns(made.runs))
        self._short = _Table.of(*_columns(made.heads))

    @property
    def untold(self) -> int:
        """Items that are too short to be looked for."""
        return len(self.items) - len(np.unique(self._item))

    def overlaps(self, texts: Sequence[str]) -> Iterator[Overlap]:
        """Items found in texts, by text and item; each text by itself."""
        for first, block in blocks(texts):
            read = words(block)
            text, form, covered = _columns((self._runs(read), self._wholes(read)))
            percent = 100 * covered // self._size[form]
            more = 100 * covered > FOUND_PERCENT * self._size[form]
            yield from self._best(first + text[more], self._item[form[more]], percent[more])

    def _runs(self, read: Words) -> tuple[I64, I64, I64]:
        """(text, form, words of the form that shared runs cover)."""
        runs, word = read.runs(self.n)
        at, entry = self._long.find(runs)
        text, form, place = read.text[word[at]], self._long.form[entry], self._long.at[entry]
        order = np.lexsort((place, form, text))
        text, form, place = text[order], form[order], place[order]
        ends = np.ones(len(text), np.bool_)  # the last run of its text and form
        ends[:-1] = (text[1:] != text[:-1]) | (form[1:] != form[:-1])
        step = np.full(len(text), self.n)
        step[:-1] = np.where(ends[:-1], self.n, np.minimum(place[1:] - place[:-1], self.n))
        last = np.flatnonzero(ends)
        total = np.cumsum(step)[last]
        return text[last], form[last], np.diff(total, prepend=0)

    def _wholes(self, read: Words) -> tuple[I64, I64, I64]:
        """The same for forms of fewer than n words, which count whole or not at all."""
        heads, word = read.runs(FORM_WORDS_MIN)
        at, entry = self._short.find(heads)
        form, word = self._short.form[entry], word[at]
        size = self._size[form]
        room = word + size <= (read.begin + read.count)[read.text[word]]
        form, word, size = form[room], word[room], size[room]
        equal = read.run_at(word, size) == self._whole[form]
        return read.text[word[equal]], form[equal], size[equal]

    def _best(self, text: I64, item: I64, percent: I64) -> Iterator[Overlap]:
        """One overlap for each text and item: that of the form which is covered most."""
        best: dict[tuple[int, int], int] = {}
        found = (text.tolist(), item.tolist(), percent.tolist())
        for row, number, share in zip(*found, strict=True):
            best[row, number] = max(share, best.get((row, number), 0))
        for (row, number), share in sorted(best.items()):
            yield Overlap(text=row, item=number, percent=share)


class _Forms:
    """Forms that are long enough to tell something, gathered block by block."""

    def __init__(self) -> None:
        self.forms: list[tuple[I64, I64, U64]] = []  # item, words, hash of the whole
        self.runs: list[tuple[U64, I64, I64]] = []  # hash, form, word it begins with
        self.heads: list[tuple[U64, I64, I64]] = []
        self._count = 0

    def add(self, read: Words, first: int, n: int, answered: NDArray[np.bool_]) -> None:
        """Texts number `first` and on: of each item the question, then that with its answer."""
        number = first + np.arange(len(read.count))
        with_answer = number % 2 == 1
        useful = read.count >= np.where(with_answer, FORM_WORDS_MIN, QUESTION_WORDS_MIN)
        useful &= ~with_answer | answered[number // 2]
        number, begin, size = number[useful], read.begin[useful], read.count[useful]
        form = self._count + np.arange(len(number))
        self._count += len(number)
        self.forms.append((number // 2, size, read.run_at(begin, size)))
        # a short form is met by its first words, then compared as a whole
        short = size < n
        heads = read.run_at(begin[short], FORM_WORDS_MIN)
        self.heads.append((heads, form[short], np.zeros_like(heads, np.int64)))
        counts = np.maximum(size - n + 1, 0)
        at = _counting(counts)
        self.runs.append(
            (read.run_at(np.repeat(begin, counts) + at, n), np.repeat(form, counts), at)
        )


def _counting(counts: I64) -> I64:
    """0, 1, … up to each count, one after the other."""
    return np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)


def _columns(parts: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Tuples of arrays, one after the other, as one tuple of longer arrays."""
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))
