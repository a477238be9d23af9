"""An endpoint of OpenAI's form that an operator names: a chat goes out, a completion comes back.

Bounded in time, tries and bytes. Neither errors nor logs quote its key, or what it answers.
"""

import asyncio
import json
import ssl
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import httpx

ANSWER_BYTES_MAX: Final = 1 << 20
AGAIN: Final = frozenset((408, 409, 429, 500, 502, 503, 504))


class EndpointError(Exception):
    """The endpoint gave no completion.

    status: what it answered; None: it did not answer
    """

    def __init__(self, problem: str, status: int | None = None) -> None:
        super().__init__(problem)
        self.status = status


class ChatEndpoint:
    """The endpoint at `url`, which ends before `/chat/completions`.

    key: sent as the bearer's token; None: it needs none
    timeout_s: limit of one try, as a whole
    tries_max: tries while the endpoint is busy or unreachable
    pause_s: before the second try; each later pause is twice as long
    at_once_max: questions that wait for it at the same time
    """

    def __init__(
        self,
        url: str,
        key: str | None,
        *,
        timeout_s: float,
        tries_max: int,
        pause_s: float,
        at_once_max: int,
    ) -> None:
        self._url = f"{url.rstrip('/')}/chat/completions"
        self._headers = {} if key is None else {"authorization": f"Bearer {key}"}
        self._timeout_s, self._tries_max, self._pause_s = timeout_s, tries_max, pause_s
        self._turns = asyncio.Semaphore(at_once_max)

    async def complete(self, body: Mapping[str, Any]) -> Any:
        """The answer to a chat as JSON. Raises EndpointError."""
        async with self._turns:
            for attempt in range(1, self._tries_max):
                try:
                    return await self._try(body)
                except EndpointError as error:
                    if error.status is not None and error.status not in AGAIN:
                        raise
                await asyncio.sleep(self._pause_s * 2 ** (attempt - 1))
            return await self._try(body)

    async def _try(self, body: Mapping[str, Any]) -> Any:
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                httpx.AsyncClient(
                    timeout=self._timeout_s, trust_env=False, verify=trusted_certificates()
                ) as client,
                client.stream("POST", self._url, json=body, headers=self._headers) as reply,
            ):
                if not reply.is_success:
                    problem = f"the endpoint answered {reply.status_code}"
                    raise EndpointError(problem, reply.status_code)
                content = await _content(reply)
        except TimeoutError:
            raise EndpointError(f"the endpoint did not answer in {self._timeout_s:g} s") from None
        except httpx.HTTPError as error:
            name = type(error).__name__
            raise EndpointError(f"the endpoint did not answer ({name})") from None
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise EndpointError("the endpoint's answer is no JSON", httpx.codes.OK) from None


@cache
def trusted_certificates() -> ssl.SSLContext:
    """The authorities that every endpoint is checked against, read once: that takes 25 ms."""
    return httpx.create_ssl_context(trust_env=False)


async def _content(reply: httpx.Response) -> bytes:
    """The body of a reply. Raises EndpointError once it is too long."""
    content = b""
    async for part in reply.aiter_bytes():
        content += part
        if len(content) > ANSWER_BYTES_MAX:
            problem = f"the endpoint's answer has more than {ANSWER_BYTES_MAX} bytes"
            raise EndpointError(problem, reply.status_code)
    return content
