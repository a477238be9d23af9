"""Requests of a pod to its agent over TLS."""

import asyncio
import datetime
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from msgspec.json import encode
from msgspec.structs import replace

from schemas.envelope import Message
from schemas.pool import ReportExit
from schemas.telemetry import LogLine
from services.cluster.adapters import pod_server
from services.cluster.adapters.certificates import Authority, client_context
from services.cluster.adapters.pod_server import HttpsPodServer
from services.cluster.domain.link import BEAT, FACT, Pulse, UrlRequest
from services.cluster.effect.lease import ClusterLease
from services.cluster.pod.agent_client import AgentAway, AgentClient, AgentRefuses
from tests.unit.services.cluster.clusters import Links, MemoryCluster, Reported, lease_in
from tests.unit.services.trainer.domain.test_evolve import grant
from tunery.runtime.bus.abstract import TooLarge
from tunery.runtime.clock import SystemClock

GRANT = grant()
EXIT = ReportExit(token=GRANT.token, incarnation="a1", outcome="succeeded", elapsed_ms=1)
NOW = datetime.datetime.now(datetime.UTC)


class Pods:
    """A server of pods with one lease."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.authority = folder, Authority(NOW)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        context = self.authority.server_context("127.0.0.1")
        self.server = HttpsPodServer(self.authority, context, "127.0.0.1", self.port)
        self.reports = Reported()
        self.lease: ClusterLease = lease_in(MemoryCluster(), GRANT, self.reports, Links())

    def context(self, authority: Authority | None = None, name: str = "") -> ssl.SSLContext:
        """TLS context of a pod. authority: issues its certificate. name: of its lease."""
        files = (authority or self.authority).client(name or self.lease.name)
        if authority is not None:
            files["ca.crt"] = self.authority.certificate
        for file, content in files.items():
            (self.folder / file).write_text(content)
        return client_context(self.folder)

    def client(self, authority: Authority | None = None, name: str = "") -> AgentClient:
        url = f"https://127.0.0.1:{self.port}"
        return AgentClient(url, self.context(authority, name), SystemClock())


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Pods]:
    pods = Pods(folder)
    pods.server.admit(pods.lease.name, pods.lease)
    running = asyncio.create_task(pods.server.run())
    try:
        await pods.server.ready()
        yield pods
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_pod_gets_its_lease_and_reports_progress(tmp_path: Path) -> None:
    async with serving(tmp_path) as pods:
        pod = pods.client()
        welcome = await pod.hello()
        assert (welcome.grant, welcome.incarnation) == (GRANT, "a1")
        pods.lease.take_keys("sealed")
        orders = await pod.pulse(Pulse(idle_ms=1, elapsed_ms=2, prepared_bytes=3))
        assert (orders.target, orders.sealed_keys) == ("run", "sealed")
        await pod.fact(EXIT)
        line = LogLine(tenant=GRANT.tenant, job_id=GRANT.job_id, attempt=1, level="info", text="a")
        await pod.telemetry(line)
        await pod.telemetry(replace(line, tenant="other"))
        assert (pods.reports.facts, pods.reports.records) == ([EXIT], [line])
        signed = await pod.url(UrlRequest(method="GET", key=f"t/{GRANT.tenant}/prepared/x"))
        assert signed.url.endswith(f"/t/{GRANT.tenant}/prepared/x")
        await pod.close()


async def test_security_requests_without_a_certificate_of_this_agent_fail(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as pods:
        stranger = pods.client(Authority(NOW))
        with pytest.raises(AgentAway):
            await stranger.pulse(Pulse())
        await stranger.close()
        bare = ssl.create_default_context(cadata=pods.authority.certificate)
        async with httpx.AsyncClient(verify=bare, trust_env=False) as client:
            with pytest.raises(httpx.TransportError):
                await client.post(f"https://127.0.0.1:{pods.port}/v1/hello")


async def test_security_a_pod_may_report_for_its_own_lease_only(tmp_path: Path) -> None:
    async with serving(tmp_path) as pods:
        other = pods.client(name="t-default-9-a1")
        with pytest.raises(AgentRefuses, match="there is no lease t-default-9-a1"):
            await other.pulse(Pulse())
        await other.close()
        pod = pods.client()
        with pytest.raises(AgentRefuses, match="is of another lease"):
            await pod.fact(replace(EXIT, token=replace(GRANT.token, lease=99)))
        with pytest.raises(AgentRefuses, match="not of this lease's tenant"):
            await pod.url(UrlRequest(method="GET", key="t/other/prepared/x"))
        pods.server.dismiss(pods.lease.name)
        with pytest.raises(AgentRefuses, match="410"):
            await pod.pulse(Pulse())
        await pod.close()
        assert pods.reports.facts == []


async def test_a_taken_port_is_an_error(tmp_path: Path) -> None:
    async with serving(tmp_path) as pods:
        context = pods.authority.server_context("127.0.0.1")
        second = HttpsPodServer(pods.authority, context, "127.0.0.1", pods.port)
        with pytest.raises(OSError, match="in use"):
            await second.run()


async def test_security_an_unfinished_body_times_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_server, "READ_S", 0.1)

    async with serving(tmp_path) as pods:
        reader, writer = await asyncio.open_connection("127.0.0.1", pods.port, ssl=pods.context())
        writer.write(f"POST {BEAT} HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{{".encode())
        assert b"408" in await reader.readline()
        writer.transport.abort()
        pod = pods.client()
        await pod.pulse(Pulse())
        await pod.close()


async def test_security_concurrent_requests_of_a_pod_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_server, "REQUESTS_MAX", 2)
    may_end = asyncio.Event()

    async def append(body: Message, tenant: str = "") -> None:
        await may_end.wait()

    async with serving(tmp_path) as pods:
        monkeypatch.setattr(pods.reports, "fact", append)
        pod = pods.client()
        saying = [asyncio.create_task(pod.fact(EXIT)) for _ in range(2)]

        async with httpx.AsyncClient(verify=pods.context(), trust_env=False) as client:
            url, refused = f"https://127.0.0.1:{pods.port}{FACT}", 0
            while refused != 503:
                try:
                    reply = await client.post(url, content=encode(EXIT), timeout=2.0)
                except httpx.TimeoutException:
                    continue  # this request waits for the log, as the first two do
                refused = reply.status_code
        assert (await pod.pulse(Pulse())).target == "run", "heartbeats are not limited"
        may_end.set()
        await asyncio.gather(*saying)
        await pod.pulse(Pulse())
        await pod.close()


async def test_security_a_command_that_the_log_refuses_is_not_sent_again(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as pods:
        pods.reports.failure = TooLarge("2000000 bytes are above the limit of 1000000")
        pod = pods.client()
        with pytest.raises(AgentRefuses, match="above the limit"):
            await pod.fact(EXIT)
        await pod.close()


@pytest.mark.parametrize(
    "body", [b"", b"\xff", b"[]", b'{"idle_ms": 1.5}', b'{"x": ' + b"[" * 100_000]
)
async def test_security_a_malformed_body_is_refused(tmp_path: Path, body: bytes) -> None:
    async with serving(tmp_path) as pods:
        async with httpx.AsyncClient(verify=pods.context(), trust_env=False) as client:
            reply = await client.post(f"https://127.0.0.1:{pods.port}{BEAT}", content=body)
        assert reply.status_code == 400
