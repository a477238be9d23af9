"""The supervisor, with small Python programs as children."""

import asyncio
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.tunery.runtime.strays import cancel_by_mistake, tasks_called
from tests.unit.tunery.runtime.strays import until as until_true
from tunery.local import supervisor as supervisors
from tunery.local.child import Child, service
from tunery.local.errors import LocalError, PortTaken
from tunery.local.events import Changed, Event, Notice, Phase
from tunery.local.paths import DataDir
from tunery.local.ports import HOST
from tunery.local.processes import descendants, read_record
from tunery.local.supervisor import Supervisor
from tunery.runtime.backoff import Backoff

READY = 'print(\'{"event":"process.ready"}\', flush=True)\n'
SLEEP = "import time; time.sleep(60)\n"


@pytest.fixture
def folders(tmp_path: Path) -> DataDir:
    created = DataDir(tmp_path)
    created.create()
    return created


class EventList(list[Event]):
    def phases(self, name: str) -> list[Phase]:
        return [event.phase for event in self if isinstance(event, Changed) and event.name == name]

    def details(self, name: str) -> list[str]:
        return [event.detail for event in self if isinstance(event, Changed) and event.name == name]


def child(name: str, code: str, cwd: Path) -> Child:
    return service(name, (sys.executable, "-S", "-c", code), cwd, {})


async def test_a_child_that_is_killed_starts_again(folders: DataDir) -> None:
    events = EventList()
    boss = Supervisor(folders, events.append)
    await boss.start([child("a", READY + SLEEP, folders.root)])
    first = boss.pid("a")
    boss.kill("a")
    await boss.await_ready("a")
    assert boss.pid("a") not in {first, None}
    assert "killed by SIGKILL; starting again in 0.25 s" in events.details("a")
    await boss.drain([["a"]])
    assert events.phases("a")[-1] is Phase.STOPPED
    assert list(folders.run.glob("*.pid")) == []


@pytest.mark.parametrize(
    ("reset_ms", "pauses"),
    [(60_000, ["0.001 s", "0.002 s", "0.004 s", "0.004 s"]), (0, ["0.001 s"] * 4)],
)
async def test_pauses_between_restarts_grow_until_a_child_has_run_for_long(
    folders: DataDir, monkeypatch: pytest.MonkeyPatch, reset_ms: int, pauses: list[str]
) -> None:
    monkeypatch.setattr(supervisors, "BACKOFF", Backoff(1, 4))
    monkeypatch.setattr(supervisors, "BACKOFF_RESET_MS", reset_ms)
    events, enough = EventList(), asyncio.Event()

    def listen(event: Event) -> None:
        events.append(event)
        if events.phases("a").count(Phase.RESTARTING) == len(pauses):
            enough.set()

    boss = Supervisor(folders, listen)
    await boss.start([child("a", READY, folders.root)])
    await asyncio.wait_for(enough.wait(), 60)
    await boss.drain([["a"]])
    restarts = [detail for detail in events.details("a") if "starting again in" in detail]
    assert [detail.rpartition(" in ")[2] for detail in restarts][: len(pauses)] == pauses
    assert restarts[0] == "ended with code 0; starting again in 0.001 s"


async def test_a_child_that_never_gets_ready_is_given_up_with_its_log(
    folders: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisors, "BACKOFF", Backoff(1, 15_000))
    boss = Supervisor(folders, lambda _event: None)
    with pytest.raises(LocalError, match="ended with code 3") as caught:
        await boss.start(
            [child("a", "import sys; print('no such topic'); sys.exit(3)", folders.root)]
        )
    assert "no such topic" in caught.value.what
    assert f"{supervisors.STARTS_MAX} starts" in caught.value.what


async def test_a_dead_child_without_restart_stays_dead_until_started(folders: DataDir) -> None:
    events = EventList()
    boss = Supervisor(folders, events.append)
    await boss.start([child("a", READY + SLEEP, folders.root)])
    assert len(boss.kill("a", restart=False)) == 1
    await asyncio.sleep(0.4)
    assert boss.pid("a") is None
    await boss.restart("a")
    assert events.phases("a")[-1] is Phase.READY
    await boss.drain([["a"]])


async def test_stages_stop_in_order_and_children_that_ignore_sigterm_are_killed(
    folders: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = EventList()
    boss = Supervisor(folders, events.append)
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + READY + SLEEP
    stubborn = child("stubborn", deaf, folders.root)
    stubborn = Child(**{**vars(stubborn), "stop_ms_max": 200})
    await boss.start([stubborn, child("server", READY + SLEEP, folders.root)])
    await boss.drain([["stubborn"], ["server"]])
    ended = [
        event.name
        for event in events
        if isinstance(event, Changed) and event.phase is Phase.STOPPED
    ]
    assert ended == ["stubborn", "server"]
    assert Notice("stubborn did not stop in time and was killed") in events


async def test_a_paused_child_can_be_stopped(folders: DataDir) -> None:
    events = EventList()
    boss = Supervisor(folders, events.append)
    await boss.start([child("a", READY + SLEEP, folders.root)])
    boss.pause("a")
    await boss.drain([["a"]])
    assert events.phases("a")[-3:] == [Phase.PAUSED, Phase.STOPPING, Phase.STOPPED]


async def test_a_pause_reaches_processes_in_sessions_of_their_own(folders: DataDir) -> None:
    below = f"subprocess.Popen([sys.executable, '-S', '-c', {SLEEP!r}], start_new_session=True)\n"
    boss = Supervisor(folders, lambda _event: None)
    code = "import subprocess, sys\n" + below + READY + SLEEP
    await boss.start([child("a", code, folders.root)])
    pid = boss.pid("a")
    assert pid is not None
    tree = [pid, *descendants(pid)]
    assert len(tree) == 2
    boss.pause("a")
    await asyncio.gather(*(until(process, stopped=True) for process in tree))
    boss.resume("a")
    await asyncio.gather(*(until(process, stopped=False) for process in tree))
    boss.kill("a", tree=True, restart=False)
    await boss.drain([["a"]])


async def until(pid: int, *, stopped: bool) -> None:
    """Signals take their time."""
    stat = Path(f"/proc/{pid}/stat")
    for _ in range(500):
        if (stat.read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "T") == stopped:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{pid} is {'not ' if stopped else ''}stopped")


async def test_orphans_of_a_dead_supervisor_are_stopped_first(folders: DataDir) -> None:
    dead = Supervisor(folders, lambda _event: None)
    await dead.start([child("a", READY + SLEEP, folders.root)])
    entry = read_record(folders.run / "a.pid")
    assert entry is not None
    events = EventList()
    await asyncio.to_thread(Supervisor(folders, events.append).clear_orphans, ("a",))
    assert events == [Notice("a of an earlier run was still alive and has been stopped")]
    assert not entry.is_alive()
    await dead.stop("a")


async def test_a_failing_setup_step_is_a_failed_start(
    folders: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisors, "BACKOFF", Backoff(1, 15_000))
    attempts: list[int] = []

    async def settle() -> None:
        attempts.append(1)
        if len(attempts) < 2:
            raise ConnectionError("bucket not made")

    events = EventList()
    boss = Supervisor(folders, events.append)
    plain = child("a", READY + SLEEP, folders.root)
    await boss.start([Child(**{**vars(plain), "settle": settle})])
    assert any(
        "started, but then ConnectionError: bucket not made" in d for d in events.details("a")
    )
    await boss.drain([["a"]])
    assert len(attempts) == 2


def test_a_grown_log_is_kept_once(folders: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisors, "LOG_BYTES_MAX", 10)
    log = folders.log("a")
    log.write_text("eleven bytes")
    supervisors.rotate(log)
    assert not log.exists()
    assert log.with_suffix(".log.1").read_text() == "eleven bytes"


def test_exits_are_described() -> None:
    assert supervisors.describe_exit(-signal.SIGSEGV) == "killed by SIGSEGV"
    assert supervisors.describe_exit(1) == "ended with code 1"


async def test_child_is_supervised_further_after_a_stray_cancellation(folders: DataDir) -> None:
    events = EventList()
    boss = Supervisor(folders, events.append)
    await boss.start([child("a", READY + SLEEP, folders.root)])
    first = boss.pid("a")
    cancel_by_mistake("keep a")
    await until_true(lambda: bool(tasks_called("keep a")))
    assert boss.pid("a") == first, "the child itself goes on"
    boss.kill("a")
    await until_true(lambda: boss.pid("a") not in {first, None})
    await boss.await_ready("a")
    await boss.drain([["a"]])
    assert events.phases("a")[-1] is Phase.STOPPED
    assert list(folders.run.glob("*.pid")) == []


async def test_child_that_was_starting_at_a_stray_cancellation_starts_again(
    folders: DataDir,
) -> None:
    once = folders.root / "once"
    hangs_once = (
        f"import pathlib, time; once = pathlib.Path({str(once)!r})\n"
        "if not once.exists(): once.touch(); time.sleep(60)\n"
    )
    boss = Supervisor(folders, EventList().append)
    starting = asyncio.create_task(
        boss.start([child("a", hangs_once + READY + SLEEP, folders.root)])
    )
    await until_true(once.exists)
    first = boss.pid("a")
    cancel_by_mistake("keep a")
    async with asyncio.timeout(180):
        await starting
    assert boss.pid("a") not in {first, None}
    await boss.drain([["a"]])


BINDS: str = """
import socket, time
own = socket.socket()
try:
    own.bind(("127.0.0.1", {port}))
except OSError as error:
    print(error, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("name", ["gateway", "metrics of gateway"])
async def test_first_hour2_u1_a_port_that_another_program_took_is_named_at_once(
    folders: DataDir, name: str
) -> None:
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        port = other.getsockname()[1]
        code = BINDS.format(port=port) + READY
        argv = (sys.executable, "-S", "-c", code)
        boss = Supervisor(folders, lambda _event: None)
        async with asyncio.timeout(180):
            with pytest.raises(PortTaken) as error:
                await boss.start([service("a", argv, folders.root, {}, {name: port})])
    assert error.value.port == port
    assert str(error.value).startswith(f"port {port}, chosen for {name}, was taken")


async def test_first_hour2_u1_a_child_that_was_ready_waits_for_its_port(
    folders: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisors, "BACKOFF", Backoff(300, 300))
    events = EventList()
    boss = Supervisor(folders, events.append)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((HOST, 0))
        port = other.getsockname()[1]
        other.close()
        argv = (sys.executable, "-S", "-c", BINDS.format(port=port) + READY + SLEEP)
        await boss.start([service("a", argv, folders.root, {}, {"a": port})])
        boss.kill("a")
        with socket.socket() as thief:
            thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            async with asyncio.timeout(180):
                while True:
                    try:
                        thief.bind((HOST, port))
                        break
                    except OSError:
                        await asyncio.sleep(0.01)
            thief.listen()
            await until_true(
                lambda: any("used by another program" in text for text in events.details("a"))
            )
        await boss.await_ready("a")
    await boss.drain([["a"]])
    assert any(f"port {port} of a is used" in detail for detail in events.details("a"))


WAITS = """
import time
print("not json")
print('{"event":"server.awaited","level":"warning","server":"Kafka","why":"no route"}', flush=True)
print('{"event":"said","level":"info"}', flush=True)
time.sleep(1.3)
"""


async def test_review2_p23_a_start_that_takes_long_says_why(
    folders: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisors, "EXPLAIN_MS", 1_000)
    events = EventList()
    boss = Supervisor(folders, events.append)
    await boss.start([child("a", WAITS + READY + SLEEP, folders.root)])
    await boss.drain([["a"]])
    said = [event.text for event in events if isinstance(event, Notice)]
    assert said[0] == "a is not ready after 1 s: server.awaited: Kafka: no route"


async def test_review2_p23_what_was_awaited_is_the_reason_of_the_end(
    folders: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisors, "BACKOFF", Backoff(1, 1))
    boss = Supervisor(folders, lambda _event: None)
    never = replace(child("a", WAITS + SLEEP, folders.root), ready_ms_max=2_000)
    with pytest.raises(LocalError, match=r"not ready after 2 s: server.awaited: Kafka: no route"):
        await boss.start([never])
