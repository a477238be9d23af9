"""Equal rows, and rows that are nearly equal: what of a row is compared, and by what number.

Case, white space and Unicode form do not count. Exact repeats have the same SHA-256 of roles and
texts, of which eight bytes are kept; near duplicates are found on the texts (see `clusters`). Those
leave out system messages, which many rows share without being alike.
"""

import hashlib
import unicodedata
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tunery.data.dialects.detection import Conversation
from tunery.data.likeness.clusters import ClusterFinder, Clusters
from tunery.data.likeness.minhash import sign

BATCH_ROWS: Final = 512  # signed together
BUCKETS: Final = 256  # sorted one at a time: little memory at ten million rows


def fingerprint(conversation: Conversation) -> int:
    """64 bits of the SHA-256 of a row's roles and texts."""
    return _print(_messages(conversation))


class DuplicateFinder:
    """Takes the rows of a file in order, a batch at a time; equal and nearly equal ones cluster."""

    def __init__(self, folder: Path | None = None) -> None:
        self._finder = ClusterFinder(folder)
        self._texts: list[str] = []
        self._prints: list[int] = []

    def __enter__(self) -> "DuplicateFinder":
        return self

    def __exit__(self, *_: object) -> None:
        self._finder.close()

    def add(self, conversation: Conversation) -> int:
        """The next row; its fingerprint."""
        messages = _messages(conversation)
        number = _print(messages)
        self._prints.append(number)
        self._texts.append("\n".join(text for role, text in messages if role != "system"))
        if len(self._texts) >= BATCH_ROWS:
            self._sign()
        return number

    def clusters(self) -> Clusters:
        self._sign()
        return self._finder.clusters()

    def _sign(self) -> None:
        texts, prints = self._texts, self._prints
        self._texts, self._prints = [], []
        self._finder.add(texts, prints, sign(texts))


def _messages(conversation: Conversation) -> list[tuple[str, str]]:
    """(role, normalised text) of each message."""
    return [
        (message["role"], _normal(f"{message['content']}{message.get('tool_calls', '')}"))
        for message in conversation.messages
    ]


def _normal(text: str) -> str:
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return " ".join(text.lower().split())


def _print(messages: Iterable[tuple[str, str]]) -> int:
    joined = "".join(f"{role}\0{text}\0" for role, text in messages)
    return int.from_bytes(hashlib.sha256(joined.encode("utf-8", "replace")).digest()[:8])


class Tally:
    """How often each 64-bit number came."""

    def __init__(self) -> None:
        self._buckets = [array("Q") for _ in range(BUCKETS)]
        self.total = 0

    def add(self, number: int) -> None:
        self._buckets[number >> 56].append(number)
        self.total += 1

    def ascending(self) -> Iterator[tuple[int, int]]:
        """(number, how often) from the smallest up."""
        for bucket in self._buckets:
            last, times = -1, 0
            for number in sorted(bucket):
                if number != last and times:
                    yield last, times
                    times = 0
                last = number
                times += 1
            if times:
                yield last, times

    def distinct(self) -> int:
        return sum(1 for _ in self.ascending())
