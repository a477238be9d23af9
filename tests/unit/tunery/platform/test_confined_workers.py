"""ConfinedWorkers, forked or as programs: the same answers, limits and ends."""

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.unit.tunery.confinement import toy_worker
from tests.unit.tunery.confinement.test_forking import assert_ended
from tunery.confinement.confined import Confinement
from tunery.confinement.policy import ConfinementPolicy
from tunery.platform import confined_workers
from tunery.platform.confined_workers import INPUT_BYTES_MAX, ConfinedWorkers, Work, WorkResult

WORK_MS_MAX: Final = 60_000
both = pytest.mark.parametrize("forks", [True, False], ids=["forked", "executed"])


def new_workers(*, forks: bool = True, mode: Any = "require") -> ConfinedWorkers:
    environment = {"PYTHONPATH": toy_worker.FOLDER, "PATH": os.environ["PATH"]}
    read = (toy_worker.FOLDER,)
    return ConfinedWorkers(
        toy_worker.MODULE,
        confinement=Confinement(mode),
        environment=environment,
        read=read,
        forks=forks,
    )


def work(*arguments: str, ms_max: int = WORK_MS_MAX, **other: Any) -> Work:
    policy = ConfinementPolicy(read=(toy_worker.FOLDER,), memory_bytes_max=1 << 30)
    return Work(**{"policy": policy, "niceness": 0, **other}, arguments=arguments, ms_max=ms_max)


@asynccontextmanager
async def waiting(workers: ConfinedWorkers) -> AsyncIterator[tuple[asyncio.Task[WorkResult], int]]:
    """A piece of work that goes on, and the process id of its worker."""
    task = asyncio.create_task(workers.run(work("wait")))
    async with asyncio.timeout(WORK_MS_MAX / 1_000):
        while not (pids := children_of(workers)):  # noqa: ASYNC110  # processes set no event
            await asyncio.sleep(0.01)
    yield task, pids[0]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def children_of(workers: ConfinedWorkers) -> list[int]:
    """ConfinedWorkers of its server."""
    pid = workers.server_pid
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@both
async def test_a_worker_gets_its_input_and_answers(forks: bool) -> None:
    workers = new_workers(forks=forks)
    for sent in (b"", b"x" * INPUT_BYTES_MAX):
        assert await workers.run(work("echo", stdin=sent)) == WorkResult(0, sent, "")
    with pytest.raises(ValueError, match="at most 65536 bytes"):
        await workers.run(work("echo", stdin=b"x" * (INPUT_BYTES_MAX + 1)))


@both
async def test_of_what_a_worker_writes_the_last_bytes_are_kept(
    forks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confined_workers, "ANSWER_BYTES_MAX", 10)
    sent = bytes(range(100))
    assert (await new_workers(forks=forks).run(work("echo", stdin=sent))).answer == sent[-10:]


@pytest.mark.parametrize("mode", ["prefer", "off"])
async def test_workers_are_forked_also_where_the_operator_asks_for_fewer_walls(mode: str) -> None:
    workers = new_workers(mode=mode)
    assert await workers.run(work("echo", stdin=b"x")) == WorkResult(0, b"x", "")
    assert workers.server_pid is not None


@both
async def test_an_exception_is_described_without_its_text(forks: bool) -> None:
    finished = await new_workers(forks=forks).run(work("fail"))
    described = finished.describe()
    assert described.startswith("the worker exited with code 1: ValueError at toy_worker.py:")
    assert "words" in finished.errors
    assert "words" not in described


@both
async def test_a_worker_has_a_limit_of_memory_of_its_own(forks: bool) -> None:
    workers = new_workers(forks=forks)
    finished = await workers.run(work("fill", str(2 << 30)))
    assert "MemoryError" in finished.describe()
    assert (await workers.run(work("fill", str(1 << 20)))).code == 0


@both
async def test_a_worker_ends_at_its_time(forks: bool) -> None:
    workers = new_workers(forks=forks)
    assert (await workers.run(work("describe"))).code == 0
    server = workers.server_pid
    with pytest.raises(TimeoutError):
        await workers.run(work("wait", ms_max=300))
    assert children_of(workers) == []
    assert workers.server_pid == server
    with pytest.raises(TimeoutError):
        await new_workers(forks=forks).run(work("wait", ms_max=1))  # before it was started


async def test_a_cancelled_piece_of_work_leaves_no_worker() -> None:
    workers = new_workers()
    async with waiting(workers) as (task, pid):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await assert_ended(pid)


async def test_a_killed_server_is_reported_as_a_killed_worker_and_another_one_starts() -> None:
    workers = new_workers()
    async with waiting(workers) as (task, pid):
        first = workers.server_pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        finished = await task
        assert finished.describe() == "the worker was killed by signal 9: it reported no exception"
        await assert_ended(pid)
    assert (await workers.run(work("describe"))).code == 0
    assert workers.server_pid not in {None, first}


async def test_files_of_no_server_are_read_by_a_program(tmp_path: Path) -> None:
    workers = new_workers()
    policy = ConfinementPolicy(read=(toy_worker.FOLDER, str(tmp_path)))
    assert (await workers.run(work("describe", policy=policy))).code == 0
    assert workers.server_pid is None


async def test_folders_stay_warm_and_a_replaced_one_has_a_new_server(tmp_path: Path) -> None:
    workers, servers = new_workers(), []
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    for folder in (*folders, folders[0]):
        assert (await workers.run(work("describe", folders=(str(folder),)))).code == 0
        servers.append(workers.server_pid)
    shutil.rmtree(folders[0])
    (tmp_path / "c").mkdir()  # so that the new folder is another one for the file system, too
    folders[0].mkdir()
    assert (await workers.run(work("describe", folders=(str(folders[0]),)))).code == 0
    servers.append(workers.server_pid)
    assert servers[0] != servers[1] == servers[2] != servers[3]


async def test_a_server_that_is_replaced_ends_after_its_workers(tmp_path: Path) -> None:
    workers = new_workers()
    async with waiting(workers) as (task, pid):
        first = workers.server_pid
        assert first is not None
        assert (await workers.run(work("describe", folders=(str(tmp_path),)))).code == 0
        assert workers.server_pid != first
        os.kill(pid, signal.SIGTERM)
        assert (await task).code == -signal.SIGTERM
        await assert_ended(first)


async def test_without_a_server_a_worker_is_a_program(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A server cannot be forked from after it started threads; it is tried again later."""
    (tmp_path / "thread").touch()
    workers = new_workers()
    for _ in range(2):
        finished = await workers.run(work("describe", folders=(str(tmp_path),)))
        assert json.loads(finished.answer)["arguments"] == ["describe"]
    assert [record.message for record in caplog.records] == ["workers.not_forked"]
    workers._not_before_s = 0.0  # a minute later
    (tmp_path / "thread").unlink()
    assert (await workers.run(work("describe", folders=(str(tmp_path),)))).code == 0
    assert workers.server_pid is not None
