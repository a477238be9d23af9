"""Counts the tokens of checked rows, and finds faults that only show with a base model."""

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from schemas.dataset import LengthPolicy
from tunery.data.containers.row import Row
from tunery.data.dialects.conversation import Conversation
from tunery.data.dialects.text_rules import SPECIAL
from tunery.data.findings.finding import Finding, Note
from tunery.data.findings.limits import ENCODE_CHARS, ENCODE_ROWS
from tunery.data.reports.report import Bin, Piece, Sample, TokenCounts
from tunery.data.tokens.chat_renderer import Rendered
from tunery.data.tokens.chunks import render_answers
from tunery.data.tokens.length_policy import fit_answers
from tunery.data.tokens.tokenizer import Encoded, Tokenizer

BINS: Final = tuple(2**power for power in range(5, 21))  # 32 to 1,048,576 tokens

SAMPLES: Final = 3  # rows that the report shows as the model sees them
SAMPLE_TOKENS_MAX: Final = 600


class TokenStatistics:
    """Renders and tokenises rows in batches of `ENCODE_ROWS`, and keeps only counts and samples.

    samples: the first rows as the model sees them
    lengths: tokens of each row, in order; those of a pair count both answers with their prompt
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        max_length: int | None = None,
        length_policy: LengthPolicy = "reject",
    ) -> None:
        self._tokenizer = tokenizer
        self._max_length = max_length
        self._length_policy = length_policy
        self._waiting: list[tuple[Row, Sequence[Rendered]]] = []
        self._waiting_texts = 0
        self.samples: list[Sample] = []
        self._waiting_chars = 0
        self._bins: Counter[int] = Counter()
        self._tokens = self._trainable = self._longest = self._rows = 0
        self.lengths = array("I")

    def add(self, row: Row, conversation: Conversation) -> list[Finding]:
        """Render a row. Returns findings about it, and about earlier rows of the same batch."""
        notes: list[Note] = []
        if conversation.tools and not self._tokenizer.shows_tools:
            notes.append(Note("tools_not_shown", "/tools"))
        special = self._tokenizer.special_in(conversation)
        if special and not SPECIAL.fullmatch(special):  # others are found without a base model
            notes.append(Note("special_token_in_text", detail=repr(special)))
        texts = render_answers(self._tokenizer, conversation)
        if isinstance(texts, Note):
            notes.append(texts)
        else:
            self._waiting.append((row, texts))
            self._waiting_texts += len(texts)
            self._waiting_chars += sum(len(rendered.text) for rendered in texts)
        findings = [note.to_finding(row.number, row.line) for note in notes]
        full = self._waiting_texts >= ENCODE_ROWS or self._waiting_chars >= ENCODE_CHARS
        return findings + (self.flush() if full else [])

    def flush(self) -> list[Finding]:
        """Tokenise the rows of the current batch and return findings about them."""
        waiting, self._waiting = self._waiting, []
        self._waiting_texts = self._waiting_chars = 0
        findings: list[Finding] = []
        encoded = iter(self._tokenizer.encode([text for _, texts in waiting for text in texts]))
        for row, texts in waiting:
            answers = list(islice(encoded, len(texts)))
            length = sum(len(tokens.ids) for tokens in answers)
            self._rows += 1
            self.lengths.append(length)
            self._tokens += length
            self._trainable += sum(tokens.trainable for tokens in answers)
            self._longest = max(self._longest, length)
            self._bins[next((bound for bound in BINS if length <= bound), length)] += 1
            notes = [*self._check_length(answers)]
            if len(self.samples) < SAMPLES:
                notes += self._add_sample(row, answers[0])
            findings += (note.to_finding(row.number, row.line) for note in notes)
        return findings

    def _check_length(self, answers: Sequence[Encoded]) -> Iterator[Note]:
        """Note why the row gives no sequence; if it is too long, also whether truncation helps."""
        fitted = fit_answers(answers, self._max_length, self._length_policy)
        if isinstance(fitted, Note):
            yield fitted
            if fitted.code == "row_too_long":
                cut = fit_answers(answers, self._max_length, "truncate")
                yield from (cut,) if isinstance(cut, Note) else ()

    def _add_sample(self, row: Row, tokens: Encoded) -> Iterator[Note]:
        """Keep a row as the model sees it, and check that decoding restores its text."""
        if self._tokenizer.decode(tokens.ids) != tokens.rendered.text:
            yield Note("text_not_restored")
        ids, mask = tokens.ids[:SAMPLE_TOKENS_MAX], b"\0" + tokens.mask[1:]
        pieces = tuple(
            Piece(text, bool(mask[start])) for start, text in self._tokenizer.pieces(ids)
        )
        self.samples.append(Sample(row.number, pieces, len(tokens.ids) - len(ids)))

    def counts(self) -> TokenCounts | None:
        """The counts so far; None when no row could be rendered."""
        if not self._rows:
            return None
        return TokenCounts(
            tokens=self._tokens,
            trainable_tokens=self._trainable,
            longest_row_tokens=self._longest,
            rows=self._rows,
            tokenizer_sha256=self._tokenizer.sha256,
            template_sha256=self._tokenizer.template_sha256,
            histogram=tuple(Bin(bound, n) for bound, n in sorted(self._bins.items())),
        )
