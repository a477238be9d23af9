"""The life of a service's process: settings, connections, hosts, SIGTERM.

One line of `services/<x>/__main__.py` starts all of it: `main("x", build)`.
"""

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

import uvloop
from prometheus_client import start_http_server

from schemas.units import Ms
from tunery.runtime.blobs.abstract import BlobsUnavailable
from tunery.runtime.bus.abstract import BusError
from tunery.runtime.connections import open_runtime
from tunery.runtime.hosts.abstract import Host, HostStopped
from tunery.runtime.journal.acceptance import PartitionStopped
from tunery.runtime.ports import Runtime
from tunery.runtime.settings import RuntimeSettings, SettingsError, load
from tunery.runtime.store.abstract import StoreUnavailable, Superseded
from tunery.runtime.telemetry.logs import configure, log_event
from tunery.runtime.telemetry.metrics import HOST_RESTARTS

LOG: Final = logging.getLogger("tunery.process")
STOP_MS_MAX: Final[Ms] = 4_000
LEAVE_MS_MAX: Final[Ms] = 800  # after the hosts: connections, threads
BACKOFF_MS: Final[Ms] = 200
BACKOFF_MS_MAX: Final[Ms] = 3_000  # how much longer than its cause an outage may last here
BACKOFF_RESET_MS: Final[Ms] = 60_000  # a host that ran this long starts again at once
EXIT_BAD_SETTINGS: Final = 2
GARBAGE_MIN: Final = 20_000  # objects that may form cycles, between two looks for such cycles
#: a server is away: that is no bug, so no trace
OUTAGE: Final = (StoreUnavailable, BlobsUnavailable, BusError)
LOOPBACK: Final = "127.0.0.1"
Build: TypeAlias = Callable[[Runtime], Awaitable[Sequence[Host]]]


def main(name: str, build: Build, *, stop_ms_max: Ms = STOP_MS_MAX) -> None:
    """Run the service until SIGTERM or SIGINT; exit 0 then, 2 for bad settings.

    `stop_ms_max`: how long the hosts together may take to stop before they are abandoned.
    """
    try:
        settings = load(RuntimeSettings)
    except SettingsError as error:
        sys.stderr.write(f"{name} cannot start:\n{error}\n")
        sys.exit(EXIT_BAD_SETTINGS)
    configure(name, settings.log_level, settings.secrets())
    spare_collector()
    if settings.metrics_port is not None:
        start_http_server(settings.metrics_port, addr=LOOPBACK)
    try:
        uvloop.run(serve(name, build, settings, stop_ms_max))
    except SettingsError as error:
        log_event(LOG, logging.CRITICAL, "bad settings", why=error)
        sys.exit(EXIT_BAD_SETTINGS)


def spare_collector() -> None:
    """Look for garbage cycles rarely: states and messages are trees, freed by their counts.

    With Python's own 700 a replay spends a third of its time on looking.
    """
    gc.freeze()
    gc.set_threshold(GARBAGE_MIN, 50, 100)


async def serve(name: str, build: Build, settings: RuntimeSettings, stop_ms_max: Ms) -> None:
    """Connect, run the hosts, stop them in their order when a signal comes."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    log_event(LOG, logging.INFO, "starting")
    work = asyncio.create_task(_live(name, build, settings, stop, stop_ms_max), name=name)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((work, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if stop.is_set():
        _leave_in(stop_ms_max + LEAVE_MS_MAX)
    await work
    log_event(LOG, logging.INFO, "stopped")


def _leave_in(ms: Ms) -> None:
    """A thread stuck in a request must not keep the process: what counts is in the log."""
    timer = threading.Timer(ms / 1_000, os._exit, (0,))
    timer.daemon = True
    timer.start()


async def _live(
    name: str, build: Build, settings: RuntimeSettings, stop: asyncio.Event, stop_ms_max: Ms
) -> None:
    opening = open_runtime(name, settings)
    runtime = await _unless(stop, opening.__aenter__())
    if runtime is None:
        return
    try:
        hosts = await build(runtime)
        await run_hosts(hosts, stop, stop_ms_max)
    finally:
        await opening.__aexit__(None, None, None)


async def _unless(stop: asyncio.Event, opening: Awaitable[Runtime]) -> Runtime | None:
    """The opened runtime, or None when the process is to stop first."""
    task = asyncio.ensure_future(opening)
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return None
    finally:
        stopping.cancel()


async def run_hosts(hosts: Sequence[Host], stop: asyncio.Event, stop_ms_max: Ms) -> None:
    """Run all until `stop`; then cancel them one after the other, in the given order."""
    tasks = [asyncio.create_task(keep(host), name=host.name) for host in hosts]
    announcing = asyncio.create_task(_announce(hosts))
    try:
        await stop.wait()
    finally:
        announcing.cancel()
        await _cancel(tasks, stop_ms_max)


async def _announce(hosts: Sequence[Host]) -> None:
    await asyncio.gather(*(host.ready() for host in hosts))
    log_event(LOG, logging.INFO, "ready", hosts=", ".join(host.name for host in hosts))


async def _cancel(tasks: Sequence[asyncio.Task[None]], stop_ms_max: Ms) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + stop_ms_max / 1_000
    for task in tasks:
        task.cancel()
        await asyncio.wait((task,), timeout=max(0.0, deadline - loop.time()))
    for task in tasks:
        if not task.done():
            log_event(LOG, logging.ERROR, "host did not stop in time", host=task.get_name())


async def keep(host: Host) -> None:
    """Run the host; again, with back-off, whenever it raises; never again once it diverged."""
    loop = asyncio.get_running_loop()
    backoff_ms = BACKOFF_MS
    while True:
        begun = loop.time()
        try:
            await host.run()
            log_event(LOG, logging.ERROR, "host ended by itself", host=host.name)
        except (HostStopped, PartitionStopped, Superseded) as error:
            log_event(
                LOG, logging.CRITICAL, "host stopped for good", error, host=host.name, why=error
            )
            return
        except OUTAGE as error:
            log_event(LOG, logging.WARNING, "host waits", host=host.name, why=error)
        except Exception as error:  # a bug in one host must not end the others
            log_event(LOG, logging.ERROR, "host failed", error, host=host.name, why=error)
        if loop.time() - begun > BACKOFF_RESET_MS / 1_000:
            backoff_ms = BACKOFF_MS
        HOST_RESTARTS.labels(host.name).inc()
        await asyncio.sleep(backoff_ms / 1_000)
        backoff_ms = min(2 * backoff_ms, BACKOFF_MS_MAX)
