"""Fork servers and their workers end when they should, whoever is killed."""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from tests.unit.tunery.confinement import toy_worker
from tunery.confinement.confined import Confinement
from tunery.confinement.forking import KILLED, ForkedWorker, ForkServer
from tunery.confinement.policy import ConfinementPolicy

pytestmark = pytest.mark.security

POLICY: Final = ConfinementPolicy(read=(toy_worker.FOLDER,), processes=True)
END_S_MAX: Final = 180.0
SERVICE: Final = """
import asyncio, sys
from tests.unit.tunery.confinement.test_forking import new_server, started
async def main():
    with new_server() as server:
        worker, pid = await started(server, "wait")
        print(server.pid, pid, flush=True)
        await worker.wait()
asyncio.run(main())
"""


@contextmanager
def new_server(*folders: str) -> Iterator[ForkServer]:
    policy = replace(POLICY, read=(*POLICY.read, *folders))
    environment = {"PYTHONPATH": toy_worker.FOLDER}
    server = ForkServer(toy_worker.MODULE, folders, policy, Confinement(), environment)
    yield server
    server.close()


async def asked(server: ForkServer, *arguments: str) -> tuple[ForkedWorker | None, int]:
    """What a server answers, and where to read what the worker writes."""
    out, theirs = os.pipe()
    with ExitStack() as closing:
        devnull = os.open(os.devnull, os.O_RDWR)
        closing.callback(os.close, devnull)
        closing.callback(os.close, theirs)
        task: dict[str, Any] = {
            "arguments": arguments,
            "environment": {},
            "niceness": 0,
            "rights": Confinement().rights(ConfinementPolicy(read=(toy_worker.FOLDER,))),
        }
        return await server.start(task, (devnull, theirs, 2)), out


async def started(server: ForkServer, *arguments: str) -> tuple[ForkedWorker, int]:
    """A worker, and its process id, which it says as its first line."""
    worker, out = await asked(server, *arguments)
    assert worker is not None
    line = await asyncio.to_thread(os.read, out, 100)
    os.close(out)
    return worker, int(line.decode().split(":")[1].rstrip("}\n"))


async def assert_ended(*pids: int) -> None:
    """No such process is there any more, or will be in a moment; a zombie is none."""
    async with asyncio.timeout(END_S_MAX):
        while any(map(runs, pids)):  # noqa: ASYNC110  # processes set no event
            await asyncio.sleep(0.01)


def runs(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


async def test_a_killed_worker_is_reported_with_its_signal_and_its_server_goes_on() -> None:
    with new_server() as server:
        worker, pid = await started(server, "wait")
        os.kill(pid, signal.SIGSEGV)
        assert await worker.wait() == -signal.SIGSEGV
        again, _ = await started(server, "wait")
        again.kill()
        assert await again.wait() == KILLED
        for each in (worker, again):
            each.close()


async def test_workers_end_with_their_server_and_are_reported_as_killed() -> None:
    with new_server() as server:
        worker, pid = await started(server, "wait")
        os.kill(server.pid, signal.SIGKILL)
        assert await worker.wait() == KILLED
        await assert_ended(pid)
        worker.close()
        assert await server.start({}, (0, 1, 2)) is None


async def test_a_worker_ends_whose_server_was_killed_before_reporting_it(tmp_path: Path) -> None:
    """Whoever asked for it starts another one, so two would do one task."""
    (tmp_path / "dies").touch()
    with new_server(str(tmp_path)) as server:
        worker, out = await asked(server, "wait")
        assert worker is None
        async with asyncio.timeout(END_S_MAX):
            while await asyncio.to_thread(os.read, out, 100):
                pass  # it had begun
        os.close(out)


async def test_a_server_and_its_workers_end_when_their_service_is_killed() -> None:
    command = (sys.executable, "-c", SERVICE)
    service = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert service.stdout is not None
    pids = [int(word) for word in (await service.stdout.readline()).split()]
    assert len(pids) == 2
    assert all(map(runs, pids))
    service.kill()
    await service.wait()
    await assert_ended(*pids)


async def test_a_server_without_a_client_ends() -> None:
    with new_server() as server:
        pid = server.pid
        del server
    gc.collect()
    await assert_ended(pid)


async def test_a_server_that_started_threads_ends_at_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A fork would have the locks of threads that are not there."""
    (tmp_path / "thread").touch()
    with new_server(str(tmp_path)) as server:
        assert await server.start({}, (0, 1, 2)) is None
    assert "started 1 threads" in capfd.readouterr().err
