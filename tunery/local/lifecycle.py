"""`tunery up` without the terminal: run a stack until told to stop."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tunery.local import initial_setup, ports, processes, state
from tunery.local.errors import LocalError
from tunery.local.events import Event, Note
from tunery.local.paths import DataDir
from tunery.local.stack import (
    SERVERS,
    SERVICES,
    Stack,
    already_running,
    is_held,
    open_data_dir,
    stack,
)
from tunery.local.state import Mood, StackState, StateFile

DETACH_MS_MAX: Final = 180_000
DOWN_MS_MAX: Final = 120_000
POLL_MS: Final = 100


async def host(
    data_dir: Path,
    services: Sequence[str],
    listen: Callable[[Event], None],
    on_ready: Callable[[Stack], None],
    *,
    preferred_ports: Mapping[str, int] = ports.PREFERRED,
) -> None:
    """Start the stack, open the house, call `on_ready`, wait for SIGTERM or SIGINT, drain.

    Raises LocalError when it cannot become ready; what was started has been stopped by then.
    """
    folders = open_data_dir(data_dir)
    if is_held(folders):
        raise already_running(folders)
    file = StateFile(folders)

    def hear(event: Event) -> None:
        file.hear(event)
        listen(event)

    life = asyncio.create_task(
        live(folders, services, file, hear, on_ready, preferred_ports), name="life of the stack"
    )
    with stop_signals() as told:
        waiting = asyncio.create_task(told.wait())
        await asyncio.wait({life, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        life.cancel()  # drains; does nothing when it has failed
        with contextlib.suppress(asyncio.CancelledError):
            await life


async def live(
    folders: DataDir,
    services: Sequence[str],
    file: StateFile,
    hear: Callable[[Event], None],
    on_ready: Callable[[Stack], None],
    preferred_ports: Mapping[str, int],
) -> None:
    """Until cancelled. The state file tells each step, the last one included."""
    try:
        async with stack(
            folders.root, services, listen=hear, preferred_ports=preferred_ports
        ) as running:
            try:
                if "gateway" in services:
                    await initial_setup.run_setup_steps(running, lambda text: hear(Note(text)))
                file.enter(Mood.READY)
                on_ready(running)
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                file.enter(Mood.STOPPING)
                raise
    except LocalError as problem:
        file.enter(Mood.FAILED, str(problem))
        raise
    except asyncio.CancelledError:
        file.enter(Mood.STOPPED)
        raise


@contextlib.contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """An event that SIGTERM and SIGINT set."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    try:
        yield told
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def detach(data_dir: Path, services: Sequence[str], watch: Callable[[StackState], None]) -> None:
    """Start `tunery up` in the background and follow its state file until it is ready.

    Raises LocalError when it ends before that, or takes longer than DETACH_MS_MAX.
    """
    folders = open_data_dir(data_dir)
    if is_held(folders):
        raise already_running(folders)
    state.path(folders).unlink(missing_ok=True)
    wanted = [word for name in services for word in ("--service", name)] or ["--no-services"]
    with folders.log("supervisor").open("ab") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tunery.cli.main",
                "up",
                "--data-dir",
                str(data_dir),
                *wanted,
                "--in-background",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
        )
    deadline = time.monotonic() + DETACH_MS_MAX / 1000
    while time.monotonic() < deadline:
        now = state.read(folders)
        watch(now)
        if now.mood is Mood.READY:
            return
        if process.poll() is not None:
            raise LocalError(
                now.failure.split("\n  fix:")[0] or "the stack ended before it was ready",
                f"read {folders.log('supervisor')}; `tunery doctor` names what is missing",
            )
        time.sleep(POLL_MS / 1000)
    raise LocalError(
        f"the stack is not ready after {DETACH_MS_MAX / 1000:g} s",
        f"read {folders.log('supervisor')}; `tunery down` stops it",
    )


def down(folders: DataDir, watch: Callable[[StackState], None]) -> list[str]:
    """Stop the supervisor in order; end what a dead one left. Returns the names of leftovers.

    Raises LocalError when it does not end within DOWN_MS_MAX.
    """
    now = state.read(folders)
    if now.supervisor is not None and now.is_alive():
        processes.send(now.supervisor.pid, signal.SIGTERM)
        deadline = time.monotonic() + DOWN_MS_MAX / 1000
        while now.supervisor.is_alive():
            if time.monotonic() > deadline:
                raise LocalError(
                    f"process {now.supervisor.pid} still runs after {DOWN_MS_MAX / 1000:g} s",
                    f"`kill -9 {now.supervisor.pid}`, then `tunery down` ends what is left",
                )
            watch(state.read(folders))
            time.sleep(POLL_MS / 1000)
    if not folders.run.is_dir():
        return []
    return processes.stop_orphans(folders.run, (*SERVICES, *SERVERS[::-1]))
