"""The HTTPS server that the pods of an agent's leases reach, each with its own certificate."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from aiohttp import web

from services.cluster.adapters.certificates import Authority
from services.cluster.domain.link import (
    BEAT,
    BODY_BYTES_MAX,
    FACT,
    HELLO,
    TELEMETRY,
    URL,
    Fact,
    PodRefused,
    Pulse,
    Telemetry,
    UrlRequest,
)
from services.cluster.ports import PodLink
from tunery.runtime.blobs.abstract import BlobsUnavailable
from tunery.runtime.bus.abstract import TooLarge
from tunery.runtime.journal.codec import MALFORMED
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.watchdog import beat

IDLE_S: Final = 1.0
REQUESTS_MAX: Final = 8  # of one pod for one path at the same time; others come again
READ_S: Final = 30.0  # for the body of a request
LOG: Final = logging.getLogger(__name__)
Handler = Callable[[PodLink, bytes], Awaitable[Any]]


class HttpsPodServer:
    """Implements `PodServer`, and `Host`: it listens while it runs.

    A pod is who its certificate says it is: its name is that of the lease's JobSet.
    """

    name = "pods"

    def __init__(self, authority: Authority, context: ssl.SSLContext, host: str, port: int) -> None:
        self._authority, self._context = authority, context
        self._host, self._port = host, port
        self._links: dict[str, tuple[PodLink, Mapping[str, asyncio.Semaphore]]] = {}
        self._listens = asyncio.Event()

    def admit(self, name: str, link: PodLink) -> Mapping[str, str]:
        # By path: a pod whose command waits for Kafka says that it lives, and is answered.
        self._links[name] = link, {path: asyncio.Semaphore(REQUESTS_MAX) for path in HANDLERS}
        return self._authority.client(name)

    def dismiss(self, name: str) -> None:
        self._links.pop(name, None)

    def answers(self, name: str) -> bool:
        return name in self._links

    async def run(self) -> None:
        """Listen until cancelled. Raises OSError where the port is taken."""
        application = web.Application(client_max_size=BODY_BYTES_MAX)
        for path, handler in HANDLERS.items():
            application.router.add_post(path, self._answering(path, handler))
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self._host, self._port, ssl_context=self._context)
            await site.start()
            log_event(LOG, logging.INFO, "pods.listening", host=self._host, port=self._port)
            self._listens.set()
            while True:
                beat("waiting")
                await asyncio.sleep(IDLE_S)
        finally:
            await runner.cleanup()

    async def ready(self) -> None:
        """Wait until it listens."""
        await self._listens.wait()

    def _answering(
        self, path: str, handler: Handler
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            name = _common_name(request.get_extra_info("peercert"))
            known = self._links.get(name)
            if known is None:
                return web.Response(status=410, text=f"there is no lease {name}")
            link, limits = known
            if limits[path].locked():
                return web.Response(status=503, text="too many requests at the same time")
            try:
                async with limits[path]:
                    said = await handler(link, await _body_of(request))
            except PodRefused as error:
                log_event(LOG, logging.WARNING, "pod.refused", jobset=name, why=error)
                return web.Response(status=403, text=str(error))
            except MALFORMED as error:
                return web.Response(status=400, text=str(error))
            except TooLarge as error:
                return web.Response(status=413, text=str(error))
            except BlobsUnavailable as error:
                return web.Response(status=503, text=str(error))
            if said is None:
                return web.Response(status=204)
            return web.Response(body=msgspec.json.encode(said), content_type="application/json")

        return answer


async def _body_of(request: web.Request) -> bytes:
    try:
        async with asyncio.timeout(READ_S):
            return await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout from None


def _common_name(certificate: Mapping[str, Any]) -> str:
    """Return the name that a verified certificate was issued to."""
    pairs = [pair for names in certificate["subject"] for pair in names]
    return str(dict(pairs)["commonName"])


async def _hello(link: PodLink, _body: bytes) -> object:
    return link.welcome()


async def _beat(link: PodLink, body: bytes) -> object:
    return link.pulse(msgspec.json.decode(body, type=Pulse))


async def _fact(link: PodLink, body: bytes) -> None:
    fact: Fact = msgspec.json.decode(body, type=Fact)
    await link.fact(fact)


async def _telemetry(link: PodLink, body: bytes) -> None:
    record: Telemetry = msgspec.json.decode(body, type=Telemetry)
    await link.telemetry(record)


async def _url(link: PodLink, body: bytes) -> object:
    return await link.url(msgspec.json.decode(body, type=UrlRequest))


HANDLERS: Final[Mapping[str, Handler]] = {
    HELLO: _hello,
    BEAT: _beat,
    FACT: _fact,
    TELEMETRY: _telemetry,
    URL: _url,
}
