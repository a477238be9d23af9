"""The gateway's API over memory adapters, with the real deciders and reactions behind it."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import msgspec

from schemas.account import PRICES_PARTITION
from schemas.dataset import BaseTokens, ReasoningPolicy, RecordValidation, Validation
from schemas.enrolment import NodeEnrolled
from schemas.envelope import Header, Message
from schemas.model import AddBase
from schemas.reasons import Failure
from schemas.streams import GLOBAL, PARTITIONS
from schemas.topics import ACCOUNT, DATASET, JOB, MODEL, POOL, STREAMS, TELEMETRY
from services.billing.adapters.prices import read_imports
from services.billing.app import ACCOUNTS
from services.billing.react import react_account
from services.gateway.api import create_app
from services.gateway.app import deps_of
from services.gateway.batches.result_files import batch_files
from services.gateway.batches.row_answers import answer_batches
from services.gateway.jobs.deps import JobDeps
from services.gateway.jobs.feeds import Feeds
from services.gateway.jobs.results import results
from services.gateway.ports import ChatEngine
from services.gateway.settings import GatewaySettings
from services.gateway.views.audit import AUDIT_ROWS
from services.gateway.views.host import VIEWS_PROJECTION
from services.gateway.views.telemetry import telemetry_reader
from services.gateway.web.command_results import CommandResults
from services.gateway.web.commands import CommandSender
from services.gateway.web.domain.token_bucket import PER_MINUTE_MAX
from services.ingest.app import DATASETS
from services.ingest.react import react_dataset
from services.registry.app import MODELS
from services.registry.react import react_model
from services.scheduler.app import JOBS, POOLS, SESSIONS
from services.scheduler.enrolling import seal_keys
from services.scheduler.react import react_job
from tests.unit.services.gateway.bases import BASE as BASE
from tests.unit.services.gateway.chat.scripted_engine import ScriptedEngine
from tunery.platform.bus.sender_keys import keys_of
from tunery.platform.memory_servers import MemoryServers, memory_servers
from tunery.platform.ports import Runtime
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.effects import EffectHost
from tunery.runtime.hosts.projector import Projector
from tunery.runtime.hosts.reactor import Reactor
from tunery.runtime.hosts.topic_reader import TopicReader
from tunery.runtime.verbs import Send

ADMIN_KEY = "admin-key-of-the-tests"
COMMAND_SECRET = b"secret of commands in the tests!"
SCHEDULER_KEYS = keys_of(COMMAND_SECRET, "scheduler")
READY_S_MAX = 30
SETTLE_S_MAX = 180
WAIT_MS_MAX = 5_000
LATE_MS = 200
ROW = b'{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]}\n'


@dataclass
class ControlPlane:
    world: MemoryServers
    runtime: Runtime
    deps: JobDeps
    api: httpx.AsyncClient
    clients: list[httpx.AsyncClient] = field(default_factory=list)
    tenants: int = 0

    async def tenant(self, **body: Any) -> httpx.AsyncClient:
        """A new tenant's client with its own key; the tenant's id is in `headers['x-tenant']`."""
        self.tenants += 1
        name = f"tenant-{self.tenants}"
        created = await self.api.post("/v1/tenants", json={"id": name, **body})
        assert created.status_code == 201, created.text
        key = await self.api.post(f"/v1/tenants/{name}/keys", json={"name": "k"})
        assert key.status_code == 201, key.text
        return self.client(key.json()["key"], name)

    def client(self, key: str, tenant: str = "") -> httpx.AsyncClient:
        created = httpx.AsyncClient(
            transport=self.api._transport,
            base_url="http://api",
            headers={"authorization": f"Bearer {key}", "x-tenant": tenant},
        )
        self.clients.append(created)
        return created

    async def send(self, stream: Any, tenant: str, body: Message, **options: Any) -> None:
        await self.runtime.sender.send(stream, options.pop("key", tenant), tenant, body, **options)

    async def upload(self, client: httpx.AsyncClient, body: bytes = ROW * 20) -> dict[str, Any]:
        answer = await client.post(
            "/v1/files", data={"purpose": "fine-tune"}, files={"file": ("rows.jsonl", body)}
        )
        assert answer.status_code == 200, answer.text
        plane: dict[str, Any] = answer.json()
        return plane

    async def validated(
        self,
        client: httpx.AsyncClient,
        file_id: str,
        *,
        accepted: bool = True,
        failure: Failure | None = None,
        dialect: str = "chat",
        reasoning: ReasoningPolicy = "keep",
    ) -> dict[str, Any]:
        """Send the validator's result, and wait until the file shows it."""
        report = msgspec.json.encode({"verdict": "accepted" if accepted else "rejected"})
        tenant = client.headers["x-tenant"]
        key = f"t/{tenant}/reports/{file_id}"
        await self.world.blobs.put(key, report)
        tokens = BaseTokens(
            base_id=BASE.base_id,
            base_sha256=BASE.sha256,
            tokens=20_000,
            trainable_tokens=9_000,
            longest_row_tokens=120,
            reasoning=reasoning,
        )
        validation = Validation(
            accepted=accepted,
            dialect=dialect,
            rows=20,
            errors=0 if accepted else 3,
            warnings=1,
            tokens=(tokens,) if accepted else (),
            report_blob=key,
            failure=failure,
        )
        await self.send(DATASET, tenant, RecordValidation(file_id=file_id, validation=validation))
        return await self.until(client, f"/v1/files/{file_id}", lambda f: f["status"] != "uploaded")

    async def until(self, client: httpx.AsyncClient, path: str, holds: Any) -> dict[str, Any]:
        """Poll until the answer satisfies `holds`."""
        async with asyncio.timeout(SETTLE_S_MAX):
            while True:
                plane: dict[str, Any] = (await client.get(path)).json()
                if holds(plane):
                    return plane
                await asyncio.sleep(0.01)

    async def telemetry(self, tenant: str, job_id: str, body: Message) -> None:
        await self.world.log.send(TELEMETRY.name, job_id.encode(), msgspec.json.encode(body))


@asynccontextmanager
async def control_plane(engine: ChatEngine | None = None) -> AsyncIterator[ControlPlane]:
    """A control plane with this engine, or a scripted one."""
    shared = await memory_servers()
    runtime = shared.runtime("gateway")
    command_results = CommandResults(runtime.store)
    settings = GatewaySettings(
        admin_key_sha256=hashlib.sha256(ADMIN_KEY.encode()).hexdigest(),
        file_bytes_max=100_000,
        requests_per_minute=PER_MINUTE_MAX,  # tests ask every few milliseconds
    )
    deps = deps_of(runtime, settings, command_results)
    deps = replace(
        deps,
        commands=CommandSender(runtime.sender, command_results, wait_ms_max=WAIT_MS_MAX),
        feeds=Feeds(runtime.store, deps.views, runtime.clock, late_ms=LATE_MS),
        draw=os.urandom,
        engine=engine or ScriptedEngine(),
    )
    hosts = _hosts(shared, runtime, command_results, deps)
    transport = httpx.ASGITransport(app=create_app(deps))
    headers = {"authorization": f"Bearer {ADMIN_KEY}"}
    client = httpx.AsyncClient(transport=transport, base_url="http://api", headers=headers)
    async with client as api, running(hosts):
        plane = ControlPlane(shared, runtime, deps, api)
        try:
            async with asyncio.timeout(READY_S_MAX):
                await asyncio.gather(*(host.ready() for host in hosts))
            await _import_prices(plane)
            await _add_base(plane)
            yield plane
        finally:
            for each in plane.clients:
                await each.aclose()


@asynccontextmanager
async def running(hosts: Sequence[Host]) -> AsyncIterator[None]:
    """The hosts run inside the block."""
    tasks = [asyncio.create_task(host.run(), name=host.name) for host in hosts]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _import_prices(plane: ControlPlane) -> None:
    for command in read_imports():
        await plane.send(ACCOUNT, GLOBAL, command, partition=PRICES_PARTITION)
    async with asyncio.timeout(SETTLE_S_MAX):
        while await plane.deps.prices.newest("2099-01-01") is None:  # noqa: ASYNC110  # another task writes it
            await asyncio.sleep(0.01)


async def _add_base(plane: ControlPlane) -> None:
    for partition in range(PARTITIONS):
        await plane.send(MODEL, GLOBAL, AddBase(base=BASE), partition=partition)
    await plane.until(plane.api, "/v1/bases", lambda answer: answer["data"])


def _give_keys(header: Header, event: Any) -> tuple[Send, ...]:
    """Seal the keys of an enrolled node; tests send what other reactions to `pool` would."""
    return seal_keys(SCHEDULER_KEYS, header, event) if isinstance(event, NodeEnrolled) else ()


def _hosts(
    shared: MemoryServers, runtime: Runtime, command_results: CommandResults, deps: JobDeps
) -> list[Host]:
    others = {name: shared.runtime(name) for name in ("billing", "ingest", "scheduler", "registry")}
    return [
        AggregateHost(others["billing"], ACCOUNTS),
        Reactor(others["billing"], ACCOUNT, react_account, streams=STREAMS),
        AggregateHost(others["ingest"], DATASETS),
        Reactor(others["ingest"], DATASET, react_dataset, streams=STREAMS),
        AggregateHost(others["scheduler"], JOBS),
        AggregateHost(others["scheduler"], POOLS),
        AggregateHost(others["scheduler"], SESSIONS),
        Reactor(others["scheduler"], JOB, react_job, streams=STREAMS),
        Reactor(others["scheduler"], POOL, _give_keys, streams=STREAMS),
        AggregateHost(others["registry"], MODELS),
        Reactor(others["registry"], MODEL, react_model, streams=STREAMS),
        command_results,
        deps.feeds,
        deps.audit,
        Projector(runtime, VIEWS_PROJECTION),
        telemetry_reader(runtime, deps.views),
        TopicReader(runtime, AUDIT_ROWS),
        EffectHost(
            runtime,
            (
                results(deps.views, deps.blobs, deps.seal),
                answer_batches(deps),
                batch_files(deps),
            ),
        ),
    ]


__all__ = ["ADMIN_KEY", "BASE", "POOL", "ROW", "ControlPlane", "control_plane"]
