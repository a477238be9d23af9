"""Errors, and the encoding of requests and responses, which both clients share."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import IO, Any, Final, TypeAlias, TypeVar
from urllib.parse import quote

import httpx

DONE: Final = "[DONE]"  # data of a stream's last event
UNKNOWN: Final = "unknown"  # code of errors that do not come from the API
SHOWN_CHARACTERS_MAX: Final = 200
NO_QUERY: Final[Mapping[str, str]] = {}
Progress: TypeAlias = Callable[[int], None]  # bytes sent so far
T = TypeVar("T")
R = TypeVar("R")


class Unreachable(Exception):
    """No server answers at the address."""


class ApiRefusal(Exception):
    """The API refused a request. `message` says why and what to do."""

    def __init__(self, status: int, code: str, message: str, param: str | None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.param = status, code, message, param


@cache
def trusted_certificates() -> ssl.SSLContext:
    """Read once in a process: it takes longer than most requests."""
    return httpx.create_ssl_context(trust_env=False)


def object_of(answer: httpx.Response) -> dict[str, Any]:
    """The object in a response. Raises ApiRefusal for an error, or if it is not the API's."""
    if not answer.is_success:
        raise refused(answer)
    try:
        body = answer.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise _foreign(answer)
    return body


def streams(answer: httpx.Response) -> bool:
    """True if a response is a successful stream of server-sent events."""
    kind = answer.headers.get("content-type", "")
    return answer.is_success and kind.startswith("text/event-stream")


def refused(answer: httpx.Response) -> ApiRefusal:
    try:
        error = answer.json()["error"]
        return ApiRefusal(answer.status_code, error["code"], error["message"], error["param"])
    except (ValueError, KeyError, TypeError):
        return _foreign(answer)


def _foreign(answer: httpx.Response) -> ApiRefusal:
    text = " ".join(answer.text.split())[:SHOWN_CHARACTERS_MAX] or answer.reason_phrase
    message = f"{answer.url} answered {answer.status_code}, and not as this API does: {text}"
    return ApiRefusal(answer.status_code, UNKNOWN, message, None)


def part(identifier: str) -> str:
    """An id as one segment of a URL; ids of models may contain slashes."""
    return quote(identifier, safe=":")


class ProgressReader:
    """A file that reports how many bytes were read."""

    def __init__(self, stream: IO[bytes], progress: Progress) -> None:
        self._stream, self._progress, self._sent = stream, progress, 0

    def read(self, size: int = -1) -> bytes:
        chunk = self._stream.read(size)
        self._sent += len(chunk)
        self._progress(self._sent)
        return chunk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def of_tenant(tenant: str | None, **more: str | None) -> Mapping[str, str]:
    """Return the query of an operator for a tenant, and more; fields that are None are left out."""
    asked = {"tenant": tenant, **more}
    return {name: value for name, value in asked.items() if value is not None}


class Pieces:
    """The parts of a file, for concurrent senders. Raises OSError when it cannot be read."""

    def __init__(self, path: Path, piece_bytes: int, progress: Progress | None) -> None:
        self._path, self._progress = path, progress
        self._piece_bytes, self._sent = piece_bytes, 0
        self.bytes = path.stat().st_size
        self.starts = range(0, self.bytes, piece_bytes)

    def read(self, start: int) -> bytes:
        with self._path.open("rb") as file:
            file.seek(start)
            return file.read(self._piece_bytes)

    def sent(self, count: int) -> None:
        self._sent += count
        if self._progress is not None:
            self._progress(self._sent)


async def at_once(work: Callable[[T], Awaitable[R]], items: Iterable[T], count: int) -> list[R]:
    """Apply a function to items, `count` at a time; results in order. An error cancels the rest."""
    gate = asyncio.Semaphore(count)

    async def bounded(item: T) -> R:
        async with gate:
            return await work(item)

    tasks = [asyncio.create_task(bounded(item)) for item in items]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def keys_path(tenant: str | None) -> str:
    """Return the path of a tenant's API keys; None: the caller's own."""
    return "/keys" if tenant is None else f"/tenants/{part(tenant)}/keys"


def path_of(segments: Iterable[str]) -> str:
    """A path of these segments."""
    return "".join(f"/{part(segment)}" for segment in segments)
