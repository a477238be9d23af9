"""What both clients share: errors, and what goes over the wire and comes back."""

import json
from collections.abc import Callable
from typing import IO, Any, Final, TypeAlias
from urllib.parse import quote

import httpx

DONE: Final = "[DONE]"
Progress: TypeAlias = Callable[[int], None]  # bytes sent so far


class Unreachable(Exception):
    """Nothing answers at the address."""


class Refused(Exception):
    """The API said no. `message` says what to do."""

    def __init__(self, status: int, code: str, message: str, param: str | None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.param = status, code, message, param


def refused(answer: httpx.Response) -> Refused:
    try:
        error = answer.json()["error"]
        return Refused(answer.status_code, error["code"], error["message"], error["param"])
    except (ValueError, KeyError, TypeError):
        text = answer.text[:300] or answer.reason_phrase
        return Refused(answer.status_code, "unknown", text, None)


def part(identifier: str) -> str:
    """As one part of a URL: ids of models may contain slashes."""
    return quote(identifier, safe=":")


class Frames:
    """Server-sent events out of lines. `position`: where to go on; `ended`: there are no more."""

    def __init__(self) -> None:
        self.position, self.ended = "", False
        self._id, self._data = "", list[str]()

    def take(self, line: str) -> Any | None:
        """The object of the frame that this line ends, if it ends one. Raises ValueError."""
        name, _, value = line.partition(": ")
        if name == "id":
            self._id = value
        elif name == "data":
            self._data.append(value)
        if line or not self._data:
            return None
        text, self._data = "\n".join(self._data), []
        if text == DONE:
            self.ended = True
            return None
        self.position = self._id
        return json.loads(text)


class Told:
    """A file that tells how much of it was read."""

    def __init__(self, stream: IO[bytes], progress: Progress) -> None:
        self._stream, self._progress, self._sent = stream, progress, 0

    def read(self, size: int = -1) -> bytes:
        chunk = self._stream.read(size)
        self._sent += len(chunk)
        self._progress(self._sent)
        return chunk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
