"""Read models filled by a separate process: two gateways, a crash, an upgrade with both releases
running, and two of each process that end in turn.
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import asyncpg
import httpx
import pytest
import pytest_asyncio

from schemas.access import VIEWS_VERSION, schema_of
from tests.processes import Process, python_process
from tests.stacks import temporary_data_dir
from tunery.local.ports import find_free
from tunery.local.stack import Stack, stack
from tunery.platform.store.roles import role_of

pytestmark = pytest.mark.timeout(900)
WAIT_S = 120
NEXT = f"gateway_v{VIEWS_VERSION + 1}"


@dataclass
class Api:
    """A gateway that fills no read models."""

    process: Process
    client: httpx.AsyncClient

    async def readiness(self) -> tuple[int, str]:
        answer = await self.client.get("/readyz")
        return answer.status_code, answer.json()["views"]

    async def is_ready(self) -> bool:
        return (await self.readiness())[0] == 200

    async def tenants(self) -> set[str]:
        answer = await self.client.get("/v1/tenants")
        assert answer.status_code == 200, answer.text
        return {tenant["id"] for tenant in answer.json()["data"]}


@dataclass
class Installation:
    servers: Stack
    stack: AsyncExitStack

    async def start(
        self, *arguments: str, port: int | None = None, service: str = "gateway"
    ) -> Process:
        environment = self.servers.settings.environment(service)
        environment |= {"TUNERY_GATEWAY_FILLS_VIEWS": "false"}
        if port is not None:
            environment["TUNERY_GATEWAY_PORT"] = str(port)
        process = await self.stack.enter_async_context(python_process(environment, *arguments))
        await process.await_log_line("process.starting")
        return process

    async def gateway(self, *arguments: str) -> Api:
        port = find_free(set())
        process = await self.start(*arguments, port=port)
        client = await self.stack.enter_async_context(
            httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{port}",
                headers={"authorization": f"Bearer {self.servers.admin_key}"},
                timeout=60,
            )
        )
        await process.await_log_line("process.ready")
        return Api(process, client)


@pytest_asyncio.fixture
async def installation() -> AsyncIterator[Installation]:
    with temporary_data_dir() as folder:
        async with stack(folder, ["billing"], environ={}) as servers, AsyncExitStack() as processes:
            yield Installation(servers, processes)


async def until_ready(api: Api) -> None:
    async with asyncio.timeout(WAIT_S):
        while not await api.is_ready():  # noqa: ASYNC110  # it asks another process
            await asyncio.sleep(0.2)


async def create(api: Api, tenant: str) -> None:
    """Create a tenant. The gateway answers 503 while nothing fills its read models: try again."""
    async with asyncio.timeout(WAIT_S):
        while True:
            answer = await api.client.post("/v1/tenants", json={"id": tenant})
            if answer.status_code != 503:
                assert answer.status_code in (201, 409), answer.text  # 409: an earlier try did it
                return


@asynccontextmanager
async def reading(api: Api) -> AsyncIterator[list[int]]:
    """Statuses of a tenant's reads every 50 ms while the block runs."""
    statuses: list[int] = []

    async def ask() -> None:
        while True:
            statuses.append((await api.client.get("/v1/tenants")).status_code)
            await asyncio.sleep(0.05)

    reader = asyncio.create_task(ask())
    try:
        yield statuses
    finally:
        reader.cancel()


async def test_fleet_read_models_have_a_process_of_their_own_and_versions_beside_each_other(
    installation: Installation,
) -> None:
    first = await installation.gateway("-m", "services.gateway")
    assert await first.readiness() == (503, "away")  # there are no rows yet
    views = await installation.start("-m", "services.gateway.fill_views")
    await until_ready(first)
    second = await installation.gateway("-m", "services.gateway")
    await until_ready(second)

    # A command at one gateway is read at the other.
    await create(first, "acme")
    assert "acme" in await second.tenants()

    # While that process is down both gateways read old rows; new ones appear once it is back.
    await views.end(signal.SIGKILL)
    assert "acme" in await first.tenants()
    waiting = asyncio.create_task(create(first, "later"))
    await asyncio.sleep(1)
    assert await second.is_ready()
    views = await installation.start("-m", "services.gateway.fill_views")
    await waiting
    assert await second.tenants() >= {"acme", "later"}

    # The next release fills its own schema while the old one is still read and written.
    operator = await asyncpg.connect(installation.servers.postgres_dsn)
    installation.stack.push_async_callback(operator.close)
    await operator.execute(f"CREATE SCHEMA {NEXT} AUTHORIZATION {role_of('gateway')}")
    async with reading(first) as statuses:
        newer = await installation.gateway("-m", "tests.next_views", "services.gateway")
        assert await newer.readiness() == (503, "away")
        new_views = await installation.start(
            "-m", "tests.next_views", "services.gateway.fill_views"
        )
        await until_ready(newer)
        assert await newer.tenants() >= {"acme", "later"}
        await create(first, "both")
        await create(newer, "next")
        assert "next" in await newer.tenants()
        async with asyncio.timeout(WAIT_S):
            while "both" not in await newer.tenants():  # noqa: ASYNC110  # another process
                await asyncio.sleep(0.1)
    assert set(statuses) == {200}

    # The next release is rolled back and started again: both schemas are still there.
    await new_views.end(signal.SIGTERM)
    await newer.process.end(signal.SIGTERM)
    assert "both" in await second.tenants()
    new_views = await installation.start("-m", "tests.next_views", "services.gateway.fill_views")
    newer = await installation.gateway("-m", "tests.next_views", "services.gateway")
    await until_ready(newer)

    # The old schema is dropped once no process of the old release runs.
    for process in (first.process, second.process, views):
        await process.end(signal.SIGTERM)
    dropped = await new_views.await_log_line("views.version_dropped")
    assert dropped["schema"] == schema_of("gateway")
    assert await newer.tenants() >= {"acme", "later", "both"}
    rows = await operator.fetch("SELECT nspname FROM pg_namespace WHERE nspname ~ '^gateway_v'")
    assert [row["nspname"] for row in rows] == [NEXT]


async def write(gateways: list[Api], tenant: str, cut_off: list[str]) -> None:
    """Create a tenant by whichever gateway answers, as a client behind a balancer does."""
    expected = {201}
    async with asyncio.timeout(WAIT_S):
        while True:
            for gateway in gateways:
                try:
                    answer = await gateway.client.post("/v1/tenants", json={"id": tenant})
                except httpx.ConnectError:
                    continue  # a balancer takes the next one
                except httpx.TransportError:
                    cut_off.append(tenant)
                else:
                    if answer.status_code != 503:
                        assert answer.status_code in expected, answer.text
                        return
                expected = {201, 409}  # the try whose outcome nobody knows may have done it
            await asyncio.sleep(0.1)


async def test_fleet_two_of_each_end_in_turn_and_no_write_is_lost() -> None:
    with temporary_data_dir() as folder:
        async with stack(folder, [], environ={}) as servers, AsyncExitStack() as processes:
            installation = Installation(servers, processes)
            await installation.start("-m", "services.gateway.fill_views")
            owners = [await owner(installation) for _ in range(2)]
            gateways = [await installation.gateway("-m", "services.gateway") for _ in range(2)]
            for gateway in gateways:
                await until_ready(gateway)
            written, cut_off = list[str](), list[str]()

            async def write_on() -> None:
                while True:
                    tenant = f"tenant-{len(written)}"
                    await write(gateways[len(written) % 2 :] + gateways, tenant, cut_off)
                    written.append(tenant)
                    await asyncio.sleep(0.2)

            writer = asyncio.create_task(write_on())
            for number, how in enumerate((signal.SIGKILL, signal.SIGTERM)):
                before = len(cut_off)
                await gateways[number].process.end(how)
                await more(written, writer)
                gateways[number] = await installation.gateway("-m", "services.gateway")
                await until_ready(gateways[number])
                assert how == signal.SIGKILL or len(cut_off) == before
                await owners[number].end(how)
                owners[number] = await owner(installation)
                await more(written, writer)
            writer.cancel()
            for gateway in gateways:
                answer = await gateway.client.get("/v1/tenants", params={"limit": 1_000})
                ids = [tenant["id"] for tenant in answer.json()["data"]]
                assert len(ids) == len({*ids})
                assert {*ids} >= {*written}


async def owner(installation: Installation) -> Process:
    """Start a process of the service that decides about tenants."""
    process = await installation.start("-m", "services.billing", service="billing")
    await process.await_log_line("process.ready")
    return process


async def more(written: list[str], writer: "asyncio.Task[None]") -> None:
    """Wait until further writes are acknowledged."""
    enough = len(written) + 5
    async with asyncio.timeout(WAIT_S):
        while len(written) < enough and not writer.done():  # noqa: ASYNC110  # others write
            await asyncio.sleep(0.1)
    if writer.done():
        writer.result()
