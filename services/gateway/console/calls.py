"""The public API, called inside this process with the key of the person who is signed in.

A page can do what its key can do over HTTP and nothing else: each call passes the same edge, with
its scopes, limits and audit. The foot of a page lists its calls.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import httpx
from starlette.types import ASGIApp, Message, Scope

BASE_URL: Final = "http://api"
JOBS: Final = "/v1/fine_tuning/jobs"
FILES: Final = "/v1/files"
CHUNKS_MAX: Final = 16  # of a response that wait until the page has read the ones before


def path_to(collection: str, name: str) -> str:
    """Return the path of an item, whose name a browser has sent: no "..", which clients resolve."""
    return f"{collection}/{quote(name, safe='').replace('.', '%2E')}"


class CallRefused(Exception):
    """The API refused a call, with its own message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class InProcess(httpx.AsyncBaseTransport):
    """Send requests to an ASGI application; bodies are streamed both ways.

    httpx's own transport for ASGI collects a response before it returns it, so that a stream of
    events would never begin.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Return the response as soon as it begins. Raises what the application raises."""
        messages: asyncio.Queue[Message | None] = asyncio.Queue(CHUNKS_MAX)
        body = aiter(request.stream)  # type: ignore[arg-type]  # it is async
        sent_all, gone = asyncio.Event(), asyncio.Event()

        async def receive() -> Message:
            if gone.is_set():
                return {"type": "http.disconnect"}
            async for chunk in body:
                return {"type": "http.request", "body": chunk, "more_body": True}
            if not sent_all.is_set():
                sent_all.set()
                return {"type": "http.request", "body": b"", "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def run() -> None:
            try:
                await self._app(_scope_of(request), receive, messages.put)
            finally:
                if not gone.is_set():  # else nothing reads the queue, which may be full
                    await messages.put(None)

        task = asyncio.create_task(run())
        response = _Body(messages, task, gone)
        try:
            start = await messages.get()
        except asyncio.CancelledError:  # the browser has left before the response began
            await response.aclose()
            raise
        if start is None:
            await task  # raises what the application raised
            raise httpx.RemoteProtocolError("no response")
        return httpx.Response(start["status"], headers=start["headers"], stream=response)


class _Body(httpx.AsyncByteStream):
    """Chunks of a response. Closing it disconnects the client."""

    def __init__(
        self, messages: asyncio.Queue[Message | None], task: asyncio.Task[None], gone: asyncio.Event
    ) -> None:
        self._messages, self._task, self._gone = messages, task, gone

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (message := await self._messages.get()) is not None:
            yield message.get("body", b"")
            if not message.get("more_body", False):
                return
        await self._task

    async def aclose(self) -> None:
        self._gone.set()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def _scope_of(request: httpx.Request) -> Scope:
    path = request.url.raw_path.split(b"?", 1)[0]
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.extensions.get("scheme") or request.url.scheme,
        "path": request.url.path,
        "raw_path": path,
        "root_path": "",
        "query_string": request.url.query,
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "client": request.extensions.get("client"),
        "server": request.extensions.get("server"),
        "state": {},
    }


@dataclass
class Call:
    """A call that a page has made, as its foot lists it."""

    method: str
    path: str
    status: int


@dataclass
class Calls:
    """The API for one request of the console."""

    http: httpx.AsyncClient
    key: str
    # address and scheme of the browser, which the API limits and links by
    extensions: dict[str, Any] = field(default_factory=dict)
    requests: list[Call] = field(default_factory=list)  # the calls so far, for the page's foot

    async def get(self, path: str, **query: Any) -> Any:
        """Return the response to a GET as JSON. Raises CallRefused."""
        params = {name: value for name, value in query.items() if value not in (None, "")}
        return _checked(await self.send("GET", path, params=params or None))

    async def get_all(self, **paths: str) -> dict[str, Any]:
        """Return the `data` of several lists by name; None for one that the key may not read."""
        pages = await asyncio.gather(*map(self.get, paths.values()), return_exceptions=True)
        lists: dict[str, Any] = {}
        for name, page in zip(paths, pages, strict=True):
            if isinstance(page, BaseException) and getattr(page, "status", None) != 403:
                raise page
            lists[name] = None if isinstance(page, BaseException) else page["data"]
        return lists

    async def delete(self, path: str) -> Any:
        """Return the response to a DELETE as JSON. Raises CallRefused."""
        return _checked(await self.send("DELETE", path))

    async def post(self, path: str, body: Any = None, **headers: str) -> Any:
        """Return the response to a POST as JSON. Raises CallRefused."""
        return _checked(await self.send("POST", path, json=body, headers=headers))

    async def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Return the response, regardless of its status."""
        async with self.stream(method, path, **options) as response:
            await response.aread()
        return response

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, headers: Mapping[str, str] = {}, **options: Any
    ) -> AsyncIterator[httpx.Response]:
        """Begin a call whose response is read as it comes."""
        request = self.http.build_request(
            method,
            path,
            # values that a browser has sent may have any character; the API refuses those
            headers=httpx.Headers(
                {"authorization": f"Bearer {self.key}", **headers}, encoding="utf-8"
            ),
            extensions=self.extensions,
            **options,
        )
        response = await self.http.send(request, stream=True)
        self.requests.append(Call(method, request.url.raw_path.decode(), response.status_code))
        async with aclosing(response):
            yield response


def client_of(api: ASGIApp) -> httpx.AsyncClient:
    """Client of the API. The API itself limits how long it takes, as for any other client."""
    return httpx.AsyncClient(transport=InProcess(api), base_url=BASE_URL, trust_env=False)


def _checked(response: httpx.Response) -> Any:
    if response.is_success:
        return response.json()
    raise refusal_of(response)


def refusal_of(response: httpx.Response) -> CallRefused:
    """Return the API's error from a response that is no success, and whose body has been read."""
    try:
        error = response.json()["error"]
        return CallRefused(response.status_code, str(error["code"]), str(error["message"]))
    except (ValueError, KeyError, TypeError):
        return CallRefused(response.status_code, "unknown", f"HTTP {response.status_code}")
