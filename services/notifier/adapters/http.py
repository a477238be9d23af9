"""Posts webhooks: the address is checked and then used, so a name cannot change in between."""

import asyncio
import socket
from collections.abc import Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Final, NamedTuple

import httpx

from schemas.units import Ms
from services.notifier.domain.target import Forbidden, Target, check_address, parse
from services.notifier.ports import (
    ANSWER_BYTES_MAX,
    ReceiverUnreachable,
    ServerAnswer,
    WebhookResponse,
)

ADDRESSES_MAX: Final = 16
DIGITS_MAX: Final = 9


class _Response(NamedTuple):
    status: int
    retry_after: str | None
    content: bytes


class HttpOutbound:
    """No redirects, no proxies, no cookies; the body of a webhook's answer is never read."""

    def __init__(self, *, allow_private: bool, timeout_ms: Ms) -> None:
        self._allow_private = allow_private
        self._timeout_s = timeout_ms / 1000
        # Receivers of several tenants may share an address, for which a jar would keep cookies.
        no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=()))
        self._client = httpx.AsyncClient(
            follow_redirects=False, trust_env=False, timeout=self._timeout_s, cookies=no_cookies
        )

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> WebhookResponse:
        """Send once. Raises ReceiverUnreachable, Forbidden."""
        response = await self._within_time("POST", url, headers, body, 0)
        return WebhookResponse(response.status, retry_after_ms(response.retry_after))

    async def call(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> ServerAnswer:
        """Send once, and read the answer. Raises ReceiverUnreachable, Forbidden."""
        response = await self._within_time(method, url, headers, body, ANSWER_BYTES_MAX)
        return ServerAnswer(response.status, response.content)

    async def _within_time(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, bytes_max: int
    ) -> "_Response":
        target = parse(url, allow_private=self._allow_private)
        try:
            async with asyncio.timeout(self._timeout_s):
                address = await self._resolve(target)
                return await self._send(method, url, target, address, headers, body, bytes_max)
        except TimeoutError as error:
            raise ReceiverUnreachable(f"no response within {self._timeout_s:g} s") from error
        except httpx.InvalidURL as error:
            raise Forbidden("it is not a URL") from error
        except httpx.HTTPError as error:  # its text may name the host, as of a wrong certificate
            raise ReceiverUnreachable(type(error).__name__) from error

    async def close(self) -> None:
        await self._client.aclose()

    async def _resolve(self, target: Target) -> str:
        """One address of the host. All must be allowed: one private address is an attack."""
        loop = asyncio.get_running_loop()
        try:
            entries = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise ReceiverUnreachable("its host cannot be resolved") from error
        addresses = [str(address[0]) for *_, address in entries][:ADDRESSES_MAX]
        for address in addresses:
            check_address(address, allow_private=self._allow_private)
        if not addresses:
            raise ReceiverUnreachable("its host has no address")
        return addresses[0]

    async def _send(
        self,
        method: str,
        url: str,
        target: Target,
        address: str,
        headers: Mapping[str, str],
        body: bytes,
        bytes_max: int,
    ) -> "_Response":
        """bytes_max: bytes of the answer that are read; 0: none."""
        original = httpx.URL(url)
        request = self._client.build_request(
            method,
            original.copy_with(host=address, fragment=None),
            content=body,
            headers={**headers, "host": original.netloc.decode("ascii")},
            # TLS still names, and checks, the host the tenant wrote
            extensions={"sni_hostname": target.host, "timeout": self._timeouts()},
        )
        response = await self._client.send(request, stream=True)
        content = bytearray()
        try:
            if bytes_max:
                async for chunk in response.aiter_raw():  # nothing is unpacked: it may be huge
                    content += chunk
                    if len(content) > bytes_max:
                        raise ReceiverUnreachable(f"its answer has more than {bytes_max} bytes")
        finally:
            await response.aclose()
        retry_after = response.headers.get("retry-after")
        return _Response(response.status_code, retry_after, bytes(content))

    def _timeouts(self) -> dict[str, float | None]:
        return httpx.Timeout(self._timeout_s).as_dict()


def retry_after_ms(value: str | None) -> Ms | None:
    """Seconds only; the other form, a date, is left to our own schedule."""
    if value is None or not value.isascii() or not value.isdigit() or len(value) > DIGITS_MAX:
        return None
    return int(value) * 1000
