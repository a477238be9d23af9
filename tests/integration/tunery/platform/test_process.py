"""A service's process against real servers: it starts, is killed, loses its database, stops."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest_asyncio

from examples.first_stream import SEATS, HoldSeats
from schemas.streams import PARTITIONS
from simulator.event_core.streams import STREAMS
from tests.integration.tunery.platform import toy_process
from tests.processes import ROOT, Process, python_process
from tests.unit.tunery.runtime.hosts.toy_service import await_result, until
from tunery.local.stack import Stack
from tunery.platform.connections import open_runtime
from tunery.platform.memory_servers import memory_servers
from tunery.platform.ports import Runtime
from tunery.platform.settings import RuntimeSettings
from tunery.runtime.bus.sender import Sender
from tunery.runtime.clock import SystemClock

NAME = "toyprocess"
RESTART_S_MAX = 120  # until a restarted process or server works


def toy_service(environment: dict[str, str]) -> AbstractAsyncContextManager[Process]:
    return python_process(environment, toy_process.__file__)


@pytest_asyncio.fixture
async def client(servers: Stack) -> AsyncIterator[Runtime]:
    """A runtime in the test's own process, as a gateway would have it."""
    settings = RuntimeSettings.model_validate(
        {name.removeprefix("TUNERY_").lower(): value for name, value in servers.env.items()}
    )
    async with open_runtime(NAME, settings) as runtime:
        await runtime.log.create((SEATS.commands, SEATS.journal), PARTITIONS)
        yield runtime


async def submit(client: Runtime, key: str) -> str:
    return await Sender(client.log, STREAMS, keys=client.keys).send(
        "seats", key, key, HoldSeats(seats=1)
    )


async def held(client: Runtime) -> set[str]:
    return {row["key"] for row in await client.store.rows("held")}


async def test_commands_sent_while_a_process_is_dead_are_handled_after_its_restart(
    servers: Stack, client: Runtime
) -> None:
    store = client.store
    async with toy_service(servers.env) as first:
        ready = await first.await_log_line("process.ready")
        assert "projector held" in ready["hosts"]
        assert (await await_result(store, await submit(client, "keep-1"))).code is None
        assert await held(client) >= {"keep-1"}
        await first.end(signal.SIGKILL)
    pending = [await submit(client, f"keep-{number}") for number in range(2, 12)]
    async with toy_service(servers.env) as second:
        results = [await await_result(store, command_id, RESTART_S_MAX) for command_id in pending]
        assert {result.code for result in results} == {None}
        assert await held(client) >= {f"keep-{number}" for number in range(1, 12)}
        await second.await_log_line("process.ready")
        assert await second.end(signal.SIGTERM) == 0
        assert [line["event"] for line in second.lines][-1] == "process.stopped"
        secrets = (servers.s3_secret_key, servers.postgres_dsn)
        assert not any(secret in json.dumps(second.lines) for secret in secrets)


async def test_an_effect_runs_and_its_row_is_removed(servers: Stack, client: Runtime) -> None:
    async with toy_service(servers.env) as process:
        await process.await_log_line("process.ready")
        await await_result(client.store, await submit(client, "passing"))

        async def gone() -> bool:
            return not await client.store.rows("todos", {"id": "passing"})

        await until(gone)
        assert "passing" not in await held(client)


async def test_a_process_waits_while_its_database_is_down(servers: Stack, client: Runtime) -> None:
    async with toy_service(servers.env) as process:
        await process.await_log_line("process.ready")
        await servers.stop("postgres")
        command_id = await submit(client, "keep-while-away")
        await process.await_log_line("host.waits")
        await servers.start("postgres")
        await await_result(client.store, command_id, RESTART_S_MAX)
        assert "keep-while-away" in await held(client)
        assert await process.end(signal.SIGTERM) == 0


async def test_rows_lost_by_a_killed_database_are_projected_again(
    servers: Stack, client: Runtime
) -> None:
    """Commits of read models do not wait for fsync, so a crash may lose some; the log has them."""
    keys = {f"keep-crash-{number}" for number in range(300)}
    async with toy_service(servers.env) as process:
        await process.await_log_line("process.ready")
        for number, key in enumerate(sorted(keys)):
            await submit(client, key)
            if number == 200:
                servers.kill("postgres")
        await servers.await_ready("postgres")

        async def all_there() -> bool:
            return keys <= await held(client)

        await until(all_there, RESTART_S_MAX)


async def test_a_process_waits_for_servers_that_are_not_up_yet(servers: Stack) -> None:
    unreachable = {
        **servers.env,
        "TUNERY_POSTGRES_DSN": "postgresql://nobody@127.0.0.1:1/none",
        "TUNERY_KAFKA_BOOTSTRAP": "127.0.0.1:1",
        "TUNERY_S3_ENDPOINT": "http://127.0.0.1:1",
    }
    async with toy_service(unreachable) as process:
        for server in ("PostgreSQL", "S3", "Kafka"):
            await process.await_log_line("server.awaited", server=server)
        assert await process.end(signal.SIGTERM) == 0


async def test_a_missing_setting_is_reported_on_start(servers: Stack) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        toy_process.__file__,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]},
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert b"TUNERY_S3_ENDPOINT is not set" in errors


async def test_the_in_memory_runtime_has_the_same_fields(client: Runtime) -> None:
    memory = (await memory_servers(SystemClock())).runtime(NAME)
    assert vars(memory).keys() == vars(client).keys()
