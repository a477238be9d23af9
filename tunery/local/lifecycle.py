"""`tunery up` and `tunery down` without their output: run a stack, start it detached, stop it."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tunery.local import initial_setup, ports, processes, prometheus, state
from tunery.local.errors import LocalError
from tunery.local.events import Event, Notice
from tunery.local.kubernetes import laptop
from tunery.local.paths import DataDir
from tunery.local.stack import (
    EXPORTER,
    OPTIONAL,
    SERVERS,
    SERVICES,
    Stack,
    already_running,
    is_held,
    open_data_dir,
    stack,
)
from tunery.local.state import StackPhase, StackState, StateFile

DETACH_MS_MAX: Final = 180_000
DOWN_MS_MAX: Final = 120_000
POLL_MS: Final = 100


async def run_until_stopped(
    data_dir: Path,
    services: Sequence[str],
    listen: Callable[[Event], None],
    on_ready: Callable[[Stack], None],
    *,
    preferred_ports: Mapping[str, int] = ports.PREFERRED,
    observe: bool = False,
    kubernetes: bool = False,
) -> None:
    """Start the stack, run its initial setup, and stop it in order at SIGTERM or SIGINT.

    on_ready: called when the stack is ready
    observe: with Prometheus next to it, which is installed first where it is missing
    kubernetes: with a cluster next to it, which is built first where it is missing

    Raises LocalError when it does not become ready; all that was started is stopped by then.
    """
    folders = open_data_dir(data_dir)
    if is_held(folders):
        raise already_running(folders)
    file = StateFile(folders)

    def on_event(event: Event) -> None:
        file.record(event)
        listen(event)

    running = asyncio.create_task(
        _run_stack(
            *(folders, services, file, on_event, on_ready, preferred_ports),
            observe=observe,
            kubernetes=kubernetes,
        ),
        name="stack",
    )
    with stop_signals() as stop:
        waiting = asyncio.create_task(stop.wait())
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        running.cancel()  # drains; does nothing when it has failed
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def _run_stack(
    folders: DataDir,
    services: Sequence[str],
    file: StateFile,
    on_event: Callable[[Event], None],
    on_ready: Callable[[Stack], None],
    preferred_ports: Mapping[str, int],
    *,
    observe: bool,
    kubernetes: bool,
) -> None:
    """Run the stack until cancelled; keeps the state file up to date, also at the end."""
    try:
        if observe:
            await asyncio.to_thread(prometheus.install)
        if kubernetes:
            await asyncio.to_thread(laptop.install)
        async with stack(
            folders.root,
            services,
            listen=on_event,
            preferred_ports=preferred_ports,
            observe=observe,
            kubernetes=kubernetes,
        ) as running:
            try:
                if "gateway" in services:
                    await initial_setup.run_setup_steps(
                        running, lambda text: on_event(Notice(text))
                    )
                file.enter(StackPhase.READY)
                on_ready(running)
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                file.enter(StackPhase.STOPPING)
                raise
    except LocalError as problem:
        file.enter(StackPhase.FAILED, str(problem))
        raise
    except asyncio.CancelledError:
        file.enter(StackPhase.STOPPED)
        raise


@contextlib.contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """An asyncio event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def detach(
    data_dir: Path,
    services: Sequence[str],
    watch: Callable[[StackState], None],
    *,
    observe: bool = False,
    kubernetes: bool = False,
) -> None:
    """Start `tunery up` in the background; returns when its state file says that it is ready.

    watch: gets each state. observe: with Prometheus next to it
    kubernetes: with a cluster next to it
    Raises LocalError when it ends early or exceeds DETACH_MS_MAX.
    """
    folders = open_data_dir(data_dir)
    if is_held(folders):
        raise already_running(folders)
    state.path(folders).unlink(missing_ok=True)
    named = [word for name in services if name != EXPORTER for word in ("--service", name)]
    wanted = [*(named or ["--no-services"]), *(["--exports"] if EXPORTER in services else ())]
    wanted += ["--observe"] if observe else []
    if kubernetes:
        laptop.install()  # minutes, which do not count to DETACH_MS_MAX
        wanted.append("--kubernetes")
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
        current = state.read(folders)
        watch(current)
        if current.phase is StackPhase.READY:
            return
        if process.poll() is not None:
            failure = state.read(folders).failure  # written since the state was read above
            raise LocalError(
                failure.split("\n  fix:")[0] or "the stack ended before it was ready",
                f"read {folders.log('supervisor')}; `tunery doctor` names what is missing",
            )
        time.sleep(POLL_MS / 1000)
    raise LocalError(
        f"the stack is not ready after {DETACH_MS_MAX / 1000:g} s",
        f"read {folders.log('supervisor')}; `tunery down` stops it",
    )


def down(folders: DataDir, watch: Callable[[StackState], None]) -> list[str]:
    """Stop the supervisor; end what an earlier one left. Returns the names of such leftovers.

    watch: gets each state. Raises LocalError when it does not end within DOWN_MS_MAX.
    """
    current = state.read(folders)
    if current.supervisor is not None and current.is_alive():
        processes.send(current.supervisor.pid, signal.SIGTERM)
        deadline = time.monotonic() + DOWN_MS_MAX / 1000
        while current.supervisor.is_alive():
            if time.monotonic() > deadline:
                raise LocalError(
                    f"process {current.supervisor.pid} still runs after {DOWN_MS_MAX / 1000:g} s",
                    f"`kill -9 {current.supervisor.pid}`, then `tunery down` ends what is left",
                )
            watch(state.read(folders))
            time.sleep(POLL_MS / 1000)
    if not folders.run.is_dir():
        return []
    return processes.stop_orphans(folders.run, (*SERVICES, EXPORTER, *OPTIONAL, *SERVERS[::-1]))
