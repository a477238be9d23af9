"""Statistics of the rows of a file, and warnings about them, in constant memory."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from tunery.data.containers.row import Row
from tunery.data.dialects.conversation import Conversation
from tunery.data.findings.finding import Finding, Note, excerpt
from tunery.data.likeness.splitting import CLASS_CHARS_MAX, CLASSES_MAX
from tunery.data.reports.report import Bin

ROWS_JUDGED_MIN: Final = 20  # with fewer rows, shares mean nothing
MAJORITY_PERCENT: Final = 90
SCRIPT_CHARS: Final = 200  # of an answer, examined to recognise its script
MINORITY_PERCENT: Final = 5
EXTREME_TIMES: Final = 32  # times the median
EXTREME_CHARS_MIN: Final = 8_000
SCRIPTS: Final = {
    "Cyrillic": re.compile("[\u0400-\u052f]"),
    "Greek": re.compile("[\u0370-\u03ff]"),
    "Hebrew": re.compile("[\u0590-\u05ff]"),
    "Arabic": re.compile("[\u0600-\u06ff]"),
    "Devanagari": re.compile("[\u0900-\u097f]"),
    "Bengali": re.compile("[\u0980-\u09ff]"),
    "Thai": re.compile("[\u0e00-\u0e7f]"),
    "Japanese": re.compile("[\u3040-\u30ff]"),  # before Chinese, whose characters Japanese uses too
    "Korean": re.compile("[\uac00-\ud7af]"),
    "Chinese": re.compile("[\u4e00-\u9fff]"),
}


class Quality:
    """Collects statistics of the valid rows of one file."""

    def __init__(self) -> None:
        self._rows = 0
        self._bins: Counter[int] = Counter()
        self._longest: tuple[int, int, int | None] = (0, 0, None)  # characters, row, line
        self._answers: Counter[str] | None = Counter()
        self._scripts: Counter[str] = Counter()

    def add(self, row: Row, conversation: Conversation) -> None:
        """Count the length, the answer and the script of one row."""
        self._rows += 1
        chars = sum(len(message["content"]) for message in conversation.messages)
        self._bins[max(5, (chars - 1).bit_length())] += 1
        if chars > self._longest[0]:
            self._longest = (chars, row.number, row.line)
        said = -1 if conversation.item is None else -2  # of a prompt: what it asks
        answer = conversation.messages[said]["content"]
        self._scripts[script_of(answer[:SCRIPT_CHARS])] += 1
        if conversation.label is not None:
            answer = f"label {str(conversation.label).lower()}"
        if self._answers is not None:
            if len(answer) > CLASS_CHARS_MAX or len(self._answers) > CLASSES_MAX:
                self._answers = None  # the answers are free texts
            else:
                self._answers[answer.strip().lower()] += 1

    def lengths(self) -> tuple[Bin, ...]:
        """The histogram of rows by characters; its upper bounds are powers of two."""
        return tuple(Bin(2**power, rows) for power, rows in sorted(self._bins.items()))

    def findings(self) -> Iterator[Finding]:
        """Yield the warnings about the rows taken together."""
        if self._rows >= ROWS_JUDGED_MIN:
            yield from self._class_imbalance()
            yield from self._extreme_length()
            yield from self._language_mix()

    def _class_imbalance(self) -> Iterator[Finding]:
        if self._answers:
            answer, times = self._answers.most_common(1)[0]
            if times * 100 >= MAJORITY_PERCENT * self._rows:
                detail = f"{times:,} of {self._rows:,}"
                note = Note("class_imbalance", detail=detail, excerpt=excerpt(answer))
                yield note.to_finding(None, None)

    def _extreme_length(self) -> Iterator[Finding]:
        chars, number, line = self._longest
        median = self._median()
        if chars >= max(EXTREME_CHARS_MIN, EXTREME_TIMES * median):
            detail = f"{chars:,} characters; half of the rows have at most {median:,}"
            yield Note("extreme_length", detail=detail).to_finding(number, line)

    def _median(self) -> int:
        """The smallest upper bound that at least half of the rows do not exceed."""
        reached = 0
        for bound in self.lengths():
            reached += bound.rows
            if reached * 2 >= self._rows:
                return bound.upto
        return 0

    def _language_mix(self) -> Iterator[Finding]:
        _, *others = self._scripts.most_common()
        if sum(rows for _, rows in others) * 100 >= MINORITY_PERCENT * self._rows:
            shares = ", ".join(f"{name} {rows:,}" for name, rows in self._scripts.most_common())
            yield Note("language_mix", detail=shares).to_finding(None, None)


def script_of(text: str) -> str:
    """The script of most letters of a text; "Latin" when it is none of `SCRIPTS`."""
    if text.isascii():
        return "Latin"
    counts = {name: len(pattern.findall(text)) for name, pattern in SCRIPTS.items()}
    best = max(counts, key=counts.__getitem__)
    return (
        best if counts[best] * 2 > len(text.split()) and counts[best] * 4 > len(text) else "Latin"
    )
