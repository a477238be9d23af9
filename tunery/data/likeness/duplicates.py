"""Exact and near duplicates of conversations.

Case, white space and Unicode normalisation form are ignored. Exact duplicates have the same
fingerprint, the first eight bytes of the SHA-256 of roles and texts. Near duplicates are found by
comparing the texts (see `clusters`) without system messages, which different rows often share.
"""

import hashlib
import unicodedata
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tunery.data.dialects.conversation import REASONING, Conversation
from tunery.data.likeness.clusters import ClusterFinder, Clusters
from tunery.data.likeness.minhash import sign

BATCH_ROWS: Final = 512  # whose signatures are computed together
BUCKETS: Final = 256  # sorted one at a time: bounds memory at ten million rows


def fingerprint(conversation: Conversation) -> int:
    """The first 64 bits of the SHA-256 of a row's normalised roles and texts."""
    return _hash(_messages(conversation))


class DuplicateFinder:
    """Collects the rows of a file in order, and clusters equal and nearly equal rows."""

    def __init__(self, folder: Path | None = None) -> None:
        self._finder = ClusterFinder(folder)
        self._texts: list[str] = []
        self._prints: list[int] = []

    def __enter__(self) -> "DuplicateFinder":
        return self

    def __exit__(self, *_: object) -> None:
        self._finder.close()

    def add(self, conversation: Conversation) -> int:
        """Add the next row and return its fingerprint."""
        messages = _messages(conversation)
        number = _hash(messages)
        self._prints.append(number)
        self._texts.append("\n".join(text for role, text in messages if role != "system"))
        if len(self._texts) >= BATCH_ROWS:
            self._sign()
        return number

    def clusters(self) -> Clusters:
        """Cluster all rows added so far."""
        self._sign()
        return self._finder.clusters()

    def _sign(self) -> None:
        texts, prints = self._texts, self._prints
        self._texts, self._prints = [], []
        self._finder.add(texts, prints, sign(texts))


def _messages(conversation: Conversation) -> list[tuple[str, str]]:
    """The role and the normalised text of each message."""
    return [
        (
            message["role"],
            _normalise(
                f"{message.get(REASONING, '')}{message['content']}{message.get('tool_calls', '')}"
            ),
        )
        for message in conversation.messages
    ]


def _normalise(text: str) -> str:
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return " ".join(text.lower().split())


def _hash(messages: Iterable[tuple[str, str]]) -> int:
    joined = "".join(f"{role}\0{text}\0" for role, text in messages)
    return int.from_bytes(hashlib.sha256(joined.encode("utf-8", "replace")).digest()[:8])


class HashCounter:
    """Counts how often each 64-bit number was added.

    total: how many numbers were added
    """

    def __init__(self) -> None:
        self._buckets = [array("Q") for _ in range(BUCKETS)]
        self.total = 0

    def add(self, number: int) -> None:
        self._buckets[number >> 56].append(number)
        self.total += 1

    def ascending(self) -> Iterator[tuple[int, int]]:
        """Yield each number and its count, from the smallest number up."""
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
        """Count the different numbers."""
        return sum(1 for _ in self.ascending())
