"""Packs the sequences of a shard into rows, a window at a time."""

from collections.abc import Sequence

from msgspec import Struct

from tunery.data.findings.limits import PACK_WINDOW_ROWS, PACK_WINDOW_TOKENS
from tunery.data.tokens.packing import pack
from tunery.data.tokens.shards import ANSWER, Document, ShardWriter


class ShardSummary(Struct, frozen=True):
    """The sums of one shard."""

    rows: int  # rows of the file
    sequences: int  # more than `rows` when rows were split
    packed_rows: int  # rows of `max_length` tokens
    # each split adds one, since a sequence begins with the last token of the previous one
    tokens: int
    trainable_tokens: int  # tokens that are labels
    truncated: int  # rows that were cut to `max_length`
    longest: int  # tokens of the longest sequence


class ShardPacker:
    """Packs the sequences of one shard, a window at a time, and writes them.

    The two answers of a pair are packed as one piece.
    """

    def __init__(self, writer: ShardWriter, max_length: int) -> None:
        self.writer = writer
        self.rows = 0
        self._max_length = max_length
        self._window: list[Sequence[Document]] = []
        self._window_tokens = self._truncated = self._longest = 0

    def add(self, documents: Sequence[Document], *, cut: bool) -> None:
        """Add the sequences of one row of the file."""
        self.rows += 1
        self._truncated += cut
        lengths = [len(document.mask) for document in documents]
        self._longest = max(self._longest, *lengths)
        alone = documents[0].role == ANSWER
        self._window += [[document] for document in documents] if alone else [documents]
        self._window_tokens += sum(lengths)
        if len(self._window) >= PACK_WINDOW_ROWS or self._window_tokens >= PACK_WINDOW_TOKENS:
            self._pack()

    def end_row(self) -> None:
        """Pack what was added: what is added from now on is in other packed rows."""
        self._pack()

    def close(self) -> ShardSummary:
        """Pack the rest, write the file and return its sums."""
        self._pack()
        self.writer.close()
        return ShardSummary(
            rows=self.rows,
            sequences=self.writer.sequences,
            packed_rows=self.writer.rows,
            tokens=self.writer.tokens,
            trainable_tokens=self.writer.trainable_tokens,
            truncated=self._truncated,
            longest=self._longest,
        )

    def _pack(self) -> None:
        window, self._window, self._window_tokens = self._window, [], 0
        lengths = [sum(len(document.mask) for document in piece) for piece in window]
        for row in pack(lengths, self._max_length).rows():
            self.writer.add_row([document for number in row for document in window[number]])
