"""`tunery up` after kills, after an interrupted initialisation and beside used ports."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import pytest

from tests.stacks import temporary_data_dir
from tunery.local import ports, processes, secrets, state
from tunery.local.paths import DataDir
from tunery.local.postgres import dsn

COMMAND_S_MAX = 240
OWN_PROGRAM = """
import asyncio, sys
from tunery.local.stack import stack

async def main():
    async with stack(sys.argv[1]):
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@contextmanager
def data_dir() -> Iterator[DataDir]:
    with temporary_data_dir() as root:
        folders = DataDir(root)
        folders.create()
        ports.assign(folders.ports, lambda _text: None, ports.ANY)
        yield folders
        tunery("down", folders)


@pytest.fixture
def folders() -> Iterator[DataDir]:
    """A data directory in which nothing has ever run."""
    with data_dir() as folders:
        yield folders


@pytest.fixture(scope="module")
def shared() -> Iterator[DataDir]:
    with data_dir() as folders:
        yield folders


@pytest.fixture
def started_stack(shared: DataDir) -> DataDir:
    """The shared data directory, with its stack started again if a test stopped it."""
    if tunery("status", shared).returncode != 0:
        up(shared)
    return shared


def tunery(command: str, folders: DataDir, *options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [
            *(sys.executable, "-m", "tunery.cli.main", command),
            *("--data-dir", str(folders.root), *options),
        ],
        capture_output=True,
        text=True,
        timeout=COMMAND_S_MAX,
        check=False,
    )


def up(folders: DataDir) -> None:
    done = tunery("up", folders, "--no-services", "--detach")
    assert done.returncode == 0, done.stdout + done.stderr


def live_processes(folders: DataDir) -> dict[str, processes.ProcessRecord]:
    records = [processes.read_record(file) for file in folders.run.glob("*.pid")]
    return {record.name: record for record in records if record is not None and record.is_alive()}


def database(folders: DataDir) -> str:
    return dsn(ports.read(folders.ports)["postgres"], secrets.load(folders.secrets))


async def insert_value(folders: DataDir, value: int) -> None:
    connection = await asyncpg.connect(database(folders))
    await connection.execute("CREATE TABLE IF NOT EXISTS kept (n int)")
    await connection.execute("INSERT INTO kept VALUES ($1)", value)
    await connection.close()


async def read_values(folders: DataDir) -> list[int]:
    connection = await asyncpg.connect(database(folders))
    rows = await connection.fetch("SELECT n FROM kept ORDER BY n")
    await connection.close()
    return [row["n"] for row in rows]


async def leave_as_an_earlier_version(folders: DataDir) -> None:
    """A schema and a table of the one role that all services had."""
    connection = await asyncpg.connect(database(folders))
    await connection.execute("ALTER SCHEMA billing OWNER TO CURRENT_USER")
    await connection.execute("CREATE TABLE billing.earlier (id serial, n int)")
    await connection.execute("INSERT INTO billing.earlier (n) VALUES (7)")
    await connection.close()


async def test_up_after_a_kill_of_the_supervisor_keeps_all_data(started_stack: DataDir) -> None:
    await insert_value(started_stack, 1)
    before = live_processes(started_stack)
    supervisor = state.read(started_stack).supervisor
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    assert processes.await_end(supervisor, 5_000)
    assert all(record.is_alive() for record in before.values())
    assert tunery("status", started_stack).returncode == 3
    up(started_stack)
    assert not any(record.is_alive() for record in before.values())
    assert any(
        "of an earlier run was still alive" in note for note in state.read(started_stack).notes
    )
    assert (await read_values(started_stack)).count(1) == 1


async def test_up_after_a_kill_of_every_process_keeps_all_data(started_stack: DataDir) -> None:
    await insert_value(started_stack, 2)
    await leave_as_an_earlier_version(started_stack)
    supervisor = state.read(started_stack).supervisor
    assert supervisor is not None
    for record in (supervisor, *live_processes(started_stack).values()):
        os.kill(record.pid, signal.SIGKILL)
        assert processes.await_end(record, 5_000)
    up(started_stack)
    assert sorted(live_processes(started_stack)) == ["kafka", "postgres", "s3", "valkey"]
    assert (await read_values(started_stack)).count(2) == 1
    keys, port = secrets.load(started_stack.secrets), ports.read(started_stack.ports)["postgres"]
    billing = await asyncpg.connect(dsn(port, keys, "billing"))
    await billing.execute("ALTER TABLE billing.earlier ADD COLUMN more int")
    # 2, or 34: after a crash a sequence leaves out what it had fetched
    assert await billing.fetchval("INSERT INTO billing.earlier (n) VALUES (8) RETURNING id") > 1
    assert await billing.fetchval("SELECT sum(n) FROM billing.earlier") == 15
    await billing.close()


async def test_half_initialised_servers_are_initialised_again(folders: DataDir) -> None:
    kafka, postgres = folders.server("kafka"), folders.server("postgres")
    (kafka / "log").mkdir(parents=True)
    (kafka / "log" / "meta.properties").write_text("version=1\ncluster.id=cut-off")
    (postgres / "data.part").mkdir(parents=True)
    (postgres / "data").mkdir()
    (postgres / "data" / "postgresql.conf").write_text("half a")
    up(folders)
    await insert_value(folders, 3)
    assert await read_values(folders) == [3]


def test_a_port_in_use_is_reported_and_replaced(folders: DataDir) -> None:
    wanted = ports.read(folders.ports)["valkey"]
    with socket.socket() as other:
        other.bind((ports.HOST, wanted))
        other.listen()
        up(folders)
    report = json.loads(tunery("status", folders, "--json").stdout)
    assert report["state"] == "ready"
    assert report["children"]["valkey"]["address"] != f"{ports.HOST}:{wanted}"
    assert any(f"port {wanted} for valkey is used" in note for note in report["notes"])


def test_up_fails_with_the_reason_when_a_child_cannot_start(folders: DataDir) -> None:
    folders.server("s3").joinpath("objects").write_text("a file where a folder should be")
    done = tunery("up", folders, "--no-services", "--detach")
    assert done.returncode == 1
    assert "s3 did not become ready" in done.stderr
    assert live_processes(folders) == {}


def test_logs_prints_a_log_and_lists_those_that_exist(started_stack: DataDir) -> None:
    assert "Kafka Server started" in tunery_logs(started_stack, "kafka")
    assert "logs exist for kafka, postgres, s3, supervisor, valkey" in tunery_logs(
        started_stack, "nobody"
    )


def tunery_logs(folders: DataDir, name: str) -> str:
    done = tunery("logs", folders, name)
    return done.stdout + done.stderr


def test_secrets_do_not_reach_logs_or_state(started_stack: DataDir) -> None:
    keys = secrets.load(started_stack.secrets)
    files: list[Path] = [*started_stack.logs.glob("*"), *started_stack.run.glob("*")]
    written = "".join(file.read_text(encoding="utf-8", errors="replace") for file in files)
    assert "ready" in written
    for secret in vars(keys).values():
        assert secret not in written


def test_a_second_up_is_refused_and_down_is_repeatable(started_stack: DataDir) -> None:
    second = tunery("up", started_stack, "--no-services")
    assert second.returncode == 1
    assert "a stack is already running" in second.stderr
    assert tunery("down", started_stack).stdout == "The stack is stopped.\n"
    assert live_processes(started_stack) == {}
    assert "No stack is running" in tunery("down", started_stack).stdout


def test_a_terminated_program_with_a_stack_leaves_no_process(folders: DataDir) -> None:
    """As a bench whose time is up: SIGTERM would end it at once, beside its servers."""
    command = [sys.executable, "-c", OWN_PROGRAM, str(folders.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"ready\n"
        left = live_processes(folders)
        assert left.keys() == {"kafka", "postgres", "valkey", "s3"}
        program.terminate()
        assert program.wait(COMMAND_S_MAX) == 1
    assert not any(record.is_alive() for record in left.values())
