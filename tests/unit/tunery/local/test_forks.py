"""Services that are forked: like programs that start anew, whoever is killed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.unit.tunery.runtime.strays import until
from tunery.local import processes
from tunery.local import supervisor as supervisors
from tunery.local.child import Child
from tunery.local.forks import ServiceForks
from tunery.local.paths import DataDir
from tunery.local.stack import NICE, ServiceSpec
from tunery.local.supervisor import Supervisor
from tunery.platform import lasting_forks as forking
from tunery.runtime.backoff import Backoff

TOY: Final = "tests.unit.tunery.local.toy_service"
LOADED: Final = (TOY, "tests.unit.tunery.local.toy_neighbour")
END_MS_MAX: Final = 30_000
#: starts a service, says its process ids, and waits for its end
SUPERVISES: Final = """
import asyncio, sys
from pathlib import Path
from tests.unit.tunery.local.test_forks import LOADED, spec
from tunery.local.forks import FORKS
from tunery.local.paths import DataDir
from tunery.local.supervisor import Supervisor

async def main():
    folders = DataDir(Path(sys.argv[1]))
    FORKS.prepare(LOADED)
    boss = Supervisor(folders, lambda _event: None)
    await boss.start([spec(folders)])
    print(boss.pid("toy"), FORKS.server_pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def spec(folders: DataDir, name: str = "toy", **variables: str) -> Child:
    return ServiceSpec(name, module=TOY, env=variables).child({}, folders.root)


@pytest.fixture
def folders(tmp_path: Path) -> DataDir:
    created = DataDir(tmp_path)
    created.create()
    return created


@pytest.fixture(scope="module")
def shared() -> Iterator[ServiceForks]:
    """One server for all tests that do not kill it."""
    server = ServiceForks()
    server.prepare(LOADED)
    yield server
    server.close()


@pytest.fixture
def forks(shared: ServiceForks, monkeypatch: pytest.MonkeyPatch) -> ServiceForks:
    monkeypatch.setattr(supervisors, "FORKS", shared)
    monkeypatch.setattr(supervisors, "BACKOFF", Backoff(1, 1))
    return shared


@asynccontextmanager
async def supervised(folders: DataDir, *children: Child) -> AsyncIterator[Supervisor]:
    boss = Supervisor(folders, lambda _event: None)
    await boss.start(children)
    yield boss
    await boss.drain([[child.name for child in children]])
    assert list(folders.run.glob("*.pid")) == []


def facts(folders: DataDir, name: str = "toy") -> dict[str, Any]:
    """Return the facts that the last start of a service wrote."""
    lines = folders.log(name).read_text(encoding="utf-8").splitlines()
    written: dict[str, Any] = json.loads(next(line for line in lines[::-1] if "niceness" in line))
    return written


def restarted(boss: Supervisor, first: int) -> bool:
    return boss.pid("toy") not in {None, first}


def is_forked(pid: int | None, forks: ServiceForks) -> bool:
    return pid is not None and processes.parent(pid) == forks.server_pid


async def test_a_forked_service_is_like_one_that_starts_anew(
    folders: DataDir, forks: ServiceForks, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with supervised(folders, spec(folders, TOY_A="1")) as boss:
        pid = boss.pid("toy")
        assert is_forked(pid, forks)
        forked, name = facts(folders), Path(f"/proc/{pid}/cmdline").read_bytes()
        assert b"TOY_A" not in Path(f"/proc/{pid}/environ").read_bytes()
    monkeypatch.setattr(supervisors, "FORKS", ServiceForks())
    async with supervised(folders, spec(folders, TOY_A="1")) as boss:
        assert processes.parent(boss.pid("toy") or 0) == os.getpid()
        assert facts(folders) == {**forked, "loaded": False, "metrics": []}
    assert forked["variables"] == {"TOY_A": "1"}
    assert (forked["module"], forked["leads"]) == ("__main__", True)
    assert forked["niceness"] == min(os.nice(0) + NICE, 19)
    assert (forked["loaded"], forked["metrics"]) == (True, ["tunery_toys"])
    assert name.split(b"\0")[0].decode() == f"{sys.executable} -m {TOY}"


async def test_a_service_gets_no_variable_of_another_one(
    folders: DataDir, forks: ServiceForks
) -> None:
    async with supervised(folders, spec(folders, TOY_A="1"), spec(folders, "b", TOY_B="2")) as boss:
        assert is_forked(boss.pid("b"), forks)
        assert facts(folders, "b")["variables"] == {"TOY_B": "2"}


async def test_a_killed_fork_starts_again_as_a_fork(folders: DataDir, forks: ServiceForks) -> None:
    async with supervised(folders, spec(folders)) as boss:
        first = boss.pid("toy")
        assert boss.kill("toy") == [first]
        await boss.await_ready("toy")
        assert boss.pid("toy") != first
        assert is_forked(boss.pid("toy"), forks)


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [("0", 0, ""), ("3", 3, ""), ("refuse", 1, "toys are refused\n"), ("fail", 1, "no toys\n")],
)
@pytest.mark.usefixtures("forks")
async def test_exit_codes_and_last_words_are_those_of_python(
    folders: DataDir, end: str, code: int, said: str
) -> None:
    ended: list[str] = []
    boss = Supervisor(folders, lambda event: ended.append(getattr(event, "detail", "")))
    await boss.start([spec(folders, TOY_END=end)])
    await until(lambda: any(f"ended with code {code};" in text for text in ended))
    await boss.drain([["toy"]])
    assert said in folders.log("toy").read_text(encoding="utf-8")


@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize("variables", [{"PYTHONPATH": "/nowhere"}, {"LD_PRELOAD": ""}])
async def test_a_service_with_variables_of_the_interpreter_starts_anew(
    folders: DataDir, variables: dict[str, str]
) -> None:
    async with supervised(folders, spec(folders, **variables)) as boss:
        assert processes.parent(boss.pid("toy") or 0) == os.getpid()


async def test_services_outlive_no_killed_server_and_start_again_by_another_one(
    folders: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = ServiceForks()
    monkeypatch.setattr(supervisors, "FORKS", own)
    monkeypatch.setattr(supervisors, "BACKOFF", Backoff(1, 1))
    monkeypatch.setattr(forking, "ENDED_MAX", 2)
    own.prepare(LOADED)
    async with supervised(folders, spec(folders)) as boss:
        for parent_is_server in (True, False):  # the second time services start anew
            first, server = boss.pid("toy"), own.server_pid
            assert first is not None
            assert server is not None
            os.kill(server, signal.SIGKILL)
            await until(partial(restarted, boss, first))
            await boss.await_ready("toy")
            assert processes.start_ticks(first) is None, "two would do the work of one"
            assert own.server_pid != server
            assert is_forked(boss.pid("toy"), own) == parent_is_server
    own.close()


def test_services_outlive_a_killed_supervisor_and_the_next_one_ends_them(
    folders: DataDir,
) -> None:
    command = [sys.executable, "-c", SUPERVISES, str(folders.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        line = program.stdout.readline()
        entry, server = (processes.record("toy", int(pid)) for pid in line.split())
        assert entry is not None
        assert server is not None
        program.kill()
    assert processes.await_end(server, END_MS_MAX)
    assert entry.is_alive()
    assert processes.read_record(folders.run / "toy.pid") == entry
    assert processes.stop_orphans(folders.run, ("toy",)) == ["toy"]
    assert not entry.is_alive()


async def test_a_fork_whose_supervisor_ends_before_it_began_does_nothing(
    folders: DataDir, forks: ServiceForks
) -> None:
    with folders.log("toy").open("ab") as out:
        forked = await forks.start(spec(folders), dict(os.environ), out.fileno())
    assert forked is not None
    os.close(forked._sending)  # as the end of its supervisor does
    assert await forked.wait() == 1
    assert "ended before it sent" in folders.log("toy").read_text(encoding="utf-8")
