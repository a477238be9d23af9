"""How a chat template begins and ends the turns of the assistant, and where they are in a text.

A turn begins after its header, which is what the template writes as the generation prompt, and goes
through the token that ends it: what the model has to generate, and nothing else.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tunery.data.dialects.conversation import Conversation
from tunery.data.tokens.message_marks import MarkedText


@dataclass(frozen=True, slots=True)
class TurnFormat:
    """How turns begin and end."""

    special: re.Pattern[str]  # matches the special tokens of the base model
    # those that end an answer, by the base model's configuration
    stops: frozenset[str] = frozenset()
    header: str = ""  # the generation prompt; empty when the template has none
    # how much of it the template writes before a short answer at least. It may write less than all,
    # such as no `<think>` before an answer without reasoning
    header_min: int = 0
    # what follows every answer, through its last special token; empty when answers are followed by
    # different tokens
    ending: str = ""

    def locate(self, marked: MarkedText, row: Conversation) -> dict[int, tuple[int, int]]:
        """The span of each assistant turn as [start, end), without those that cannot be located."""
        answers = [i for i, m in enumerate(row.messages) if m["role"] == "assistant"]
        if len(marked.blocks) == len(answers):
            return dict(zip(answers, marked.blocks, strict=True))
        quoted = {start for start, _ in marked.plain}
        edges = sorted(marked.messages.values())
        turns: dict[int, tuple[int, int]] = {}
        for i in answers:
            if i not in marked.messages:
                continue
            first, last = marked.messages[i]
            before = max((end for _, end in edges if end <= first and end < last), default=0)
            after = min((start for start, _ in edges if start > last), default=len(marked.text))
            begin = self.header_end(marked.text, before, first)
            end = self._find_end(marked.text, last, after, quoted)
            if end is not None:
                turns[i] = (begin, end)
        return turns

    def header_end(self, text: str, before: int, first: int) -> int:
        """Return where the header ends in `text[before:first]`; `first` without a header."""
        size, end = self.match_header(text, before, first)
        return end if size >= max(self.header_min, 1) else first

    def match_header(self, text: str, before: int, first: int) -> tuple[int, int]:
        """How many characters of the header are in `text[before:first]`, and where they end.

        Of several matches the longest counts, and of these the first: gpt-oss writes a header
        before the reasoning and another one before the answer.
        """
        opening = self.special.match(self.header)
        anchor = opening[0] if opening else self.header
        best, end = 0, first
        at = text.find(anchor, before, first) if anchor else -1
        while at >= 0:
            size = _count_common(self.header, text[at : min(first, at + len(self.header))])
            if size > best:
                best, end = size, at + size
            at = text.find(anchor, at + 1, first)
        return best, end

    def _find_end(self, text: str, last: int, after: int, quoted: set[int]) -> int | None:
        """Return the end of the turn whose text ends at `last`, before the next message at `after`.

        The turn ends with the usual ending, or with the first token that stops the base model. The
        last turn, and one that is followed by a header, may end with any special token, such as
        that of gpt-oss after a call. None when there is no such token.
        """
        at = text.find(self.ending, last, after) if self.ending else -1
        if at >= 0 and at not in quoted:
            return at + len(self.ending)
        opening = self.special.match(self.header)
        end = None
        for token in self._tokens(text, last, after, quoted):
            if token[0] in self.stops:
                return token.end()
            if opening is not None and token[0] == opening[0]:
                return end
            end = token.end()
        return end if after == len(text) else None

    def _tokens(self, text: str, start: int, end: int, quoted: set[int]) -> Iterator[re.Match[str]]:
        """The special tokens of the template in `text[start:end]`."""
        return (m for m in self.special.finditer(text, start, end) if m.start() not in quoted)


def learn_header(special: re.Pattern[str], question: str, prompted: str) -> str:
    """Return the generation prompt that a template appends to a question.

    question, prompted: a question, rendered without and with the generation prompt
    """
    size = _count_common(question, prompted)
    for token in special.finditer(prompted):
        if token.start() < size < token.end():
            size = token.start()  # both continue with a special token, but not with the same
    return prompted[size:]


def learn_ending(special: re.Pattern[str], after_first: str, after_last: str) -> str:
    """Return the text after both answers of a conversation, through its last special token."""
    common = after_first[: _count_common(after_first, after_last)]
    ends = [token.end() for token in special.finditer(common)]
    return common[: ends[-1]] if ends else ""


def _count_common(text: str, other: str) -> int:
    """How many characters at the beginning of both texts are the same."""
    for at, (left, right) in enumerate(zip(text, other, strict=False)):
        if left != right:
            return at
    return min(len(text), len(other))
