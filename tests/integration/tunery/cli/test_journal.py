"""`tunery journal` on real stacks: inspect a journal, copy it to another stack, repair it there."""

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiokafka import AIOKafkaProducer

from schemas.topics import ACCOUNT
from tests.commands import run_tunery
from tests.integration.services.gateway.control_plane import admin
from tests.stacks import temporary_data_dir
from tunery.local.stack import ServiceSpec, Stack, stack
from tunery.runtime.bus.partitioner import partition_of

SERVICES = ("gateway", "billing")
TENANT = "acme"
PARTITION = str(partition_of(TENANT.encode()))
WAIT_S = 180
SILENT_S = 8  # a command starts in one or two, and a service waits for five


async def run_journal(where: Stack, *words: str, code: int = 0) -> Any:
    """Output of `tunery journal … --json`: an object, a list for `tail`, or text of an error."""
    out, errors = await run_tunery(where.folders.root, "journal", *words, "--json", code=code)
    if not out:
        return errors.decode()
    lines = [json.loads(line) for line in out.splitlines()]
    return lines if words[0] == "tail" else lines[0]


async def tenants(api: httpx.AsyncClient) -> list[str]:
    """Ids of all tenants; waits until there is at least one."""
    async with asyncio.timeout(WAIT_S):
        while True:
            answer = await api.get("/v1/tenants")
            if answer.status_code == 200 and answer.json()["data"]:
                return [key["id"] for key in answer.json()["data"]]
            await asyncio.sleep(0.1)


async def create_key(api: httpx.AsyncClient) -> None:
    reply = await api.post(f"/v1/tenants/{TENANT}/keys", json={"name": "k"})
    assert reply.status_code == 201, reply.text


@asynccontextmanager
async def two_folders() -> AsyncIterator[tuple[Path, Path]]:
    with temporary_data_dir() as first, temporary_data_dir() as second:
        yield first, second


@pytest.mark.timeout(900)
async def test_a_journal_is_inspected_copied_to_another_stack_and_repaired(tmp_path: Path) -> None:
    file = str(tmp_path / "account.jsonl")
    async with two_folders() as (source_folder, target_folder):
        async with stack(source_folder, services=SERVICES, environ={}) as running:
            await create_tenant_and_keys(running)
            await check_inspection(running)
            await run_journal(running, "export", "account", file)
            refused = await run_journal(running, "import", file, "--replace", code=1)
            assert "the owner of account is running" in refused
        for folder in (running.folders.keystore, running.folders.roots):
            shutil.copytree(folder, target_folder / folder.name)
        async with stack(target_folder, environ={}) as moved:
            restored = {
                partition["partition"]: partition
                for partition in await import_into_a_slow_broker(moved, file)
            }
            assert restored[int(PARTITION)]["next_command"] == 4  # with the price book
            assert len(restored) == 8
            assert "--replace" in await run_journal(moved, "import", file, code=1)
            await moved.add(*(ServiceSpec(name) for name in SERVICES))
            async with admin(moved) as api:
                assert await tenants(api) == [TENANT]
                await create_key(api)
            await run_journal(moved, "export", "account", file)
            await moved.stop("billing")
            await check_damage_and_repair(moved, file)


async def import_into_a_slow_broker(moved: Stack, file: str) -> Any:
    """Kafka answers nothing for longer than a service would wait for it; a command waits on."""
    moved.pause("kafka")
    work = asyncio.create_task(run_journal(moved, "import", file))
    done, _ = await asyncio.wait([work], timeout=SILENT_S)
    assert not done
    moved.resume("kafka")
    return await work


async def create_tenant_and_keys(running: Stack) -> None:
    async with admin(running) as api:
        reply = await api.post("/v1/tenants", json={"id": TENANT, "name": "ACME Inc."})
        assert reply.status_code == 201, reply.text
        for _ in range(2):
            await create_key(api)


async def check_inspection(running: Stack) -> None:
    created, *keys = await run_journal(running, "tail", "account", "--key", TENANT)
    assert created["content"]["events"][0]["type"] == "TenantCreated.v1"
    assert created["content"]["events"][0]["name"].startswith(f"[sealed with {TENANT}.")
    assert [record["content"]["events"][0]["type"] for record in keys] == ["KeyCreated.v1"] * 2
    position = ("account", PARTITION, str(created["offset"]))
    opened = await run_journal(running, "inspect", *position, "--unseal")
    assert opened["content"]["events"][0]["name"] == "ACME Inc."
    verified = await run_journal(running, "verify")
    assert verified["sound"] is True
    assert (
        sum(
            partition["claims"]
            for partition in verified["partitions"]
            if partition["stream"] == "account"
        )
        == 8
    )


async def check_damage_and_repair(moved: Stack, file: str) -> None:
    """A record of an unknown kind stops the owner; after an import of the export it runs again."""
    producer = AIOKafkaProducer(**moved.kafka_as().client_options)
    await producer.start()
    topic, partition = ACCOUNT.journal.name, int(PARTITION)
    written = await producer.send_and_wait(topic, b'{"record":"decree"}', partition=partition)
    await producer.stop()
    offset = str(written.offset)
    record = await run_journal(moved, "inspect", "account", PARTITION, offset, code=1)
    assert (record["verdict"], record["bytes"]) == ("unreadable", 'b\'{"record":"decree"}\'')
    bad = await run_journal(moved, "verify", "account", code=1)
    (wrong,) = (partition["bad"] for partition in bad["partitions"] if partition["bad"])
    assert (wrong["partition"], wrong["offset"]) == (partition, written.offset)
    await moved.start("billing")
    log, reason = moved.folders.log("billing"), f'"why":"account/{PARTITION} at offset'
    async with asyncio.timeout(WAIT_S):
        while f"{reason} {offset}:" not in log.read_text():  # noqa: ASYNC110  # a file
            await asyncio.sleep(0.1)
    assert await alarms(moved) == [PARTITION]
    for name in SERVICES:
        await moved.stop(name)
    await run_journal(moved, "import", file, "--replace")
    assert (await run_journal(moved, "verify", "account"))["sound"] is True
    for name in SERVICES:
        await moved.start(name)
    async with admin(moved) as api:
        assert await tenants(api) == [TENANT]
        await create_key(api)
    assert await alarms(moved) == []


async def alarms(moved: Stack) -> list[str]:
    """Partitions of `account` at which the gateway's views have stopped, by its metrics."""
    async with admin(moved) as api:
        metrics = (await api.get("/metrics")).text
    stopped = re.findall(r"^tunery_partition_stopped{(.*)} 1\.0$", metrics, re.MULTILINE)
    return [dict(re.findall(r'(\w+)="(.*?)"', labels))["partition"] for labels in stopped]
