"""Exact repeats: rows whose normalised text has the same SHA-256. Eight bytes a row are kept."""

import hashlib
import unicodedata
from array import array
from collections.abc import Iterator
from typing import Final

from tunery.data.dialects import Conversation

BUCKETS: Final = 256  # sorted one at a time: little memory at ten million rows


def fingerprint(conversation: Conversation) -> int:
    """64 bits of the SHA-256 of a row's text: case, white space and Unicode form do not count."""
    digest = hashlib.sha256()
    for message in conversation.messages:
        text = f"{message['content']}{message.get('tool_calls', '')}"
        if not text.isascii():
            text = unicodedata.normalize("NFKC", text)
        text = " ".join(text.lower().split())
        digest.update(f"{message['role']}\0{text}\0".encode("utf-8", "replace"))
    return int.from_bytes(digest.digest()[:8])


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
