"""Finds rows that contain items of a benchmark, by runs of n words that both contain.

An item is searched in two forms: the question, and the question with its answer. A row contains a
form when more than half of the form's words are in runs of n words that the row contains too. A
form of fewer than n words must be contained whole. A question of fewer than 8 words is too common
and is searched only together with its answer. n = 13 is strict; n = 8 also finds changed copies.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from tunery.data.screening.word_ngrams import I64, U64, Words, blocks, words

Bits: TypeAlias = NDArray[np.uint8]

STRICT_WORDS: Final = 13
LOOSE_WORDS: Final = 8
QUESTION_WORDS_MIN: Final = 8  # shorter ("Which of these is true?") are in rows of all kinds
FORM_WORDS_MIN: Final = 5  # of question and answer; shorter items are not searched
FOUND_PERCENT: Final = 50  # of a form's words; more than this is a finding
FILTER_BITS: Final = 24  # two filters of 2 MiB: 2 % false alarms at two million runs
FILTER_MASK: Final = np.uint64((1 << FILTER_BITS) - 1)


class BenchmarkItem(Struct, frozen=True, kw_only=True):
    benchmark: str
    # file and row that it comes from
    source: str = field(name="place")  # the key in stored benchmarks
    question: str  # its text
    answer: str = ""  # text of the right answer; may be empty


class Overlap(Struct, frozen=True, kw_only=True):
    """A text that contains an item."""

    text: int  # number of the text
    item: int  # number of the item
    percent: int  # share of the item's words that the text contains


@dataclass(frozen=True, slots=True)
class _Table:
    """The runs of all forms, sorted by hash."""

    run: U64  # hash of each run
    form: I64  # number of the form that contains it
    at: I64  # index of the word of the form with which it begins
    # Bloom filters: the shift of a hash, and one bit for each value of the rest
    filters: tuple[tuple[np.uint64, Bits], ...]

    @classmethod
    def build(cls, run: U64, form: I64, at: I64) -> "_Table":
        order = np.argsort(run, kind="stable")
        filters = []
        for shift in (np.uint64(64 - FILTER_BITS), np.uint64(64 - 2 * FILTER_BITS)):
            seen = np.zeros(1 << FILTER_BITS, np.bool_)
            seen[(run >> shift) & FILTER_MASK] = True
            filters.append((shift, np.packbits(seen, bitorder="little")))
        return cls(run[order], form[order], at[order], tuple(filters))

    def find(self, runs: U64) -> tuple[I64, I64]:
        """Every match, as the index in `runs` and the index in the table."""
        maybe = np.arange(len(runs))
        for shift, bits in self.filters:
            slot = (runs[maybe] >> shift) & FILTER_MASK
            bit = bits[slot >> np.uint64(3)] >> (slot & np.uint64(7)).astype(np.uint8)
            maybe = maybe[np.flatnonzero(bit & np.uint8(1))]
        first = np.searchsorted(self.run, runs[maybe], "left")
        count = np.searchsorted(self.run, runs[maybe], "right") - first
        return np.repeat(maybe, count), np.repeat(first, count) + _ranges(count)


class BenchmarkIndex:
    """An index of benchmark items that is searched with texts.

    n: words of a run
    items: the items, whose index is their number
    """

    def __init__(self, items: Sequence[BenchmarkItem], n: int = STRICT_WORDS) -> None:
        self.n = n
        self.items = tuple(items)
        forms = _Forms()
        texts = [
            text for item in items for text in (item.question, f"{item.question}\n{item.answer}")
        ]
        answered = np.array([bool(item.answer.strip()) for item in items], np.bool_)
        for first, block in (*blocks(texts), (len(texts), ())):
            forms.add(words(block), first, n, answered)
        self._item, self._size, self._whole = _columns(forms.forms)
        self._long = _Table.build(*_columns(forms.runs))
        self._short = _Table.build(*_columns(forms.heads))

    def overlaps(self, texts: Sequence[str]) -> Iterator[Overlap]:
        """Yield the items that each text contains, ordered by text and item."""
        for first, block in blocks(texts):
            read = words(block)
            text, form, covered = _columns((self._match_runs(read), self._match_short(read)))
            percent = 100 * covered // self._size[form]
            enough = 100 * covered > FOUND_PERCENT * self._size[form]
            yield from self._best(first + text[enough], self._item[form[enough]], percent[enough])

    def _match_runs(self, read: Words) -> tuple[I64, I64, I64]:
        """Return text, form and number of covered words of each pair that shares a run."""
        runs, word = read.runs(self.n)
        at, entry = self._long.find(runs)
        text, form, start = read.text[word[at]], self._long.form[entry], self._long.at[entry]
        order = np.lexsort((start, form, text))
        text, form, start = text[order], form[order], start[order]
        ends = np.ones(len(text), np.bool_)  # the last run of its text and form
        ends[:-1] = (text[1:] != text[:-1]) | (form[1:] != form[:-1])
        step = np.full(len(text), self.n)
        step[:-1] = np.where(ends[:-1], self.n, np.minimum(start[1:] - start[:-1], self.n))
        last = np.flatnonzero(ends)
        total = np.cumsum(step)[last]
        return text[last], form[last], np.diff(total, prepend=0)

    def _match_short(self, read: Words) -> tuple[I64, I64, I64]:
        """Return the same for forms of fewer than n words, which a text must contain whole."""
        heads, word = read.runs(FORM_WORDS_MIN)
        at, entry = self._short.find(heads)
        form, word = self._short.form[entry], word[at]
        size = self._size[form]
        fits = word + size <= (read.begin + read.count)[read.text[word]]
        form, word, size = form[fits], word[fits], size[fits]
        equal = read.run_at(word, size) == self._whole[form]
        return read.text[word[equal]], form[equal], size[equal]

    def _best(self, text: I64, item: I64, percent: I64) -> Iterator[Overlap]:
        """Yield one overlap for each text and item: that of the form with the larger share."""
        best: dict[tuple[int, int], int] = {}
        columns = (text.tolist(), item.tolist(), percent.tolist())
        for row, number, share in zip(*columns, strict=True):
            best[row, number] = max(share, best.get((row, number), 0))
        for (row, number), share in sorted(best.items()):
            yield Overlap(text=row, item=number, percent=share)


class _Forms:
    """The forms that are long enough to be searched, collected block by block.

    forms: item, number of words, and hash of each form
    runs: hash, form, and index of the first word of each run
    heads: hash, form and index of the first words of each form of fewer than n words
    """

    def __init__(self) -> None:
        self.forms: list[tuple[I64, I64, U64]] = []
        self.runs: list[tuple[U64, I64, I64]] = []
        self.heads: list[tuple[U64, I64, I64]] = []
        self._count = 0

    def add(self, read: Words, first: int, n: int, answered: NDArray[np.bool_]) -> None:
        """Add texts from number `first` on; each item has its question, then both together.

        `answered` says for each item whether it has an answer.
        """
        number = first + np.arange(len(read.count))
        with_answer = number % 2 == 1
        useful = read.count >= np.where(with_answer, FORM_WORDS_MIN, QUESTION_WORDS_MIN)
        useful &= ~with_answer | answered[number // 2]
        number, begin, size = number[useful], read.begin[useful], read.count[useful]
        form = self._count + np.arange(len(number))
        self._count += len(number)
        self.forms.append((number // 2, size, read.run_at(begin, size)))
        # a short form is found by its first words, then compared as a whole
        short = size < n
        heads = read.run_at(begin[short], FORM_WORDS_MIN)
        self.heads.append((heads, form[short], np.zeros_like(heads, np.int64)))
        counts = np.maximum(size - n + 1, 0)
        at = _ranges(counts)
        self.runs.append(
            (read.run_at(np.repeat(begin, counts) + at, n), np.repeat(form, counts), at)
        )


def _ranges(counts: I64) -> I64:
    """The ranges 0, 1, … below each count, joined."""
    return np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)


def _columns(parts: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Join tuples of arrays to one tuple of longer arrays."""
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))
