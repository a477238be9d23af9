"""The few HTTP calls of the story, as any client would make them."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx

POLL_S: Final = 0.5
UNAVAILABLE: Final = 503
RETRIES_MAX: Final = 20


class Refused(Exception):
    """The API said no; the message is its own."""


class Late(Exception):
    """Something did not happen in time."""


class Api:
    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def get(self, path: str, **params: Any) -> Any:
        return await self._call("GET", path, params=params)

    async def post(self, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        return await self._call("POST", path, json=body, headers=headers)

    async def upload(self, path: Path) -> Any:
        content = path.read_bytes()
        return await self._call(
            "POST",
            "/files",
            data={"purpose": "fine-tune"},
            files={"file": (path.name, content, "application/jsonl")},
        )

    async def until(self, path: str, done: Callable[[Any], bool], seconds_max: float) -> Any:
        """Poll until `done`. Raises Late, which shows what was there last."""
        for _ in range(int(seconds_max / POLL_S)):
            found = await self.get(path)
            if done(found):
                return found
            await asyncio.sleep(POLL_S)
        raise Late(f"{path} is not there after {seconds_max:.0f} s; the last answer: {found}")

    async def _call(self, method: str, path: str, **arguments: Any) -> Any:
        for attempt in range(RETRIES_MAX):
            response = await self._client.request(method, f"/v1{path}", **arguments)
            if response.status_code != UNAVAILABLE:
                break
            await asyncio.sleep(POLL_S * (1 + attempt / 4))
        if response.is_error:
            raise Refused(f"{method} {path}: {response.status_code} {response.text[:500]}")
        return response.json()
