"""Servers of the user's own: a refusal is said within a second, and ends the start."""

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.unit.tunery.local.test_stack import folders_in
from tunery.local import own_servers, ports, secrets, settings
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir
from tunery.platform.bus.broker_settings import Violation
from tunery.platform.bus.kafka import KafkaSettings
from tunery.platform.bus.kafka_accounts import LoginRefused
from tunery.platform.bus.preparation import Unsuitable
from tunery.runtime.bus.abstract import Unavailable

DSN = "postgresql://me:secret@127.0.0.1:1/tunery"
KAFKA = {"TUNERY_KAFKA_BOOTSTRAP": "127.0.0.1:1,127.0.0.1:2"}


def stack_settings(folders: DataDir, environ: Mapping[str, str]) -> settings.Settings:
    ports.assign(folders.ports, lambda _: None, ports.ANY)
    keys = secrets.load_or_create(folders.secrets)
    return settings.build(folders, ports.read(folders.ports), keys, environ)


async def check(folder: Path, environ: Mapping[str, str], notices: list[str]) -> None:
    where = stack_settings(folders_in(folder), environ)
    await own_servers.check(where, environ, notices.append)


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        (KAFKA, "kafka of TUNERY_KAFKA_BOOTSTRAP is awaited: Kafka at 127.0.0.1:1"),
        ({"TUNERY_POSTGRES_DSN": DSN}, "postgres of TUNERY_POSTGRES_DSN is awaited"),
        ({"TUNERY_VALKEY_URL": "redis://127.0.0.1:1/0"}, "valkey of TUNERY_VALKEY_URL is awaited"),
    ],
)
async def test_review2_p23_a_server_that_refuses_is_named_at_once_and_ends_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: Mapping[str, str], named: str
) -> None:
    monkeypatch.setattr(own_servers, "AWAIT_MS_MAX", 1_000)
    notices: list[str] = []
    with pytest.raises(LocalError, match="cannot be used") as refused:
        await check(tmp_path, environ, notices)
    assert notices[0].startswith(named)
    assert next(iter(environ)) in refused.value.fix
    assert "secret" not in f"{notices} {refused.value}"


async def test_review2_p23_a_server_that_does_not_answer_is_named_before_the_start_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_servers, "CONNECT_S_MAX", 0.2)
    notices: list[str] = []
    writers: list[asyncio.StreamWriter] = []

    async def say_nothing(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)

    silent = await asyncio.start_server(say_nothing, ports.HOST, 0)
    async with silent:
        port = silent.sockets[0].getsockname()[1]
        environ = {"TUNERY_POSTGRES_DSN": DSN.replace(":1/", f":{port}/")}
        waiting = asyncio.create_task(check(tmp_path, environ, notices))
        async with asyncio.timeout(180):
            while not notices:  # noqa: ASYNC110  # plain state of the test
                await asyncio.sleep(0.02)
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        for writer in writers:
            writer.close()
            await writer.wait_closed()
    assert "TimeoutError" in notices[0]


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (LoginRefused("wrong password"), "kafka cannot be used: wrong password"),
        (Unsuitable([Violation("a.b", True, "a.b is 1", "a.b=2")]), "a.b is 1\n  fix: a.b=2"),
    ],
)
async def test_review2_p23_what_waiting_does_not_cure_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, what: str
) -> None:
    async def refuse(_settings: KafkaSettings) -> list[str]:
        raise error

    monkeypatch.setattr(own_servers, "check_brokers", refuse)
    with pytest.raises(LocalError) as refused:
        async with asyncio.timeout(180):
            await check(tmp_path, KAFKA, [])
    assert what in refused.value.what


async def test_review2_p1_better_settings_are_recommended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    async def note(_settings: KafkaSettings) -> list[str]:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise Unavailable("not yet")
        return ["set x"]

    async def without_notes(_settings: KafkaSettings) -> list[str]:
        return []

    monkeypatch.setattr(own_servers, "check_brokers", note)
    monkeypatch.setattr(own_servers, "provide_topics", without_notes)
    monkeypatch.setattr(own_servers, "RETRY_MS", 1)
    notices: list[str] = []
    await check(tmp_path, KAFKA, notices)
    assert notices == ["kafka of TUNERY_KAFKA_BOOTSTRAP is awaited: not yet", "kafka: set x"]
