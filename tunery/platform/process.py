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
from typing import Any, Final, TypeAlias

import uvloop
from prometheus_client import REGISTRY

from schemas.units import Ms
from tunery.platform.connections import open_runtime
from tunery.platform.ports import Runtime
from tunery.platform.settings import RuntimeSettings, SettingsError, load
from tunery.platform.telemetry.certificates import certificate_ends
from tunery.runtime.health import Health
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.hosts.keeping import BACKOFF, HostUnstoppable, keep
from tunery.runtime.hosts.levels import LevelHost
from tunery.runtime.hosts.probes import LOOPBACK, Probes
from tunery.runtime.levels import ReleaseTooOld
from tunery.runtime.loop_watch import watched_event_loop
from tunery.runtime.tasks import KeptTask, StrayCancellation, log_all_tasks, result_of, stop_tasks
from tunery.runtime.telemetry.logs import configure, log_event
from tunery.runtime.telemetry.traces import start_traces, stop_traces

LOG: Final = logging.getLogger("tunery.process")
STOP_MS_MAX: Final[Ms] = 4_000
LEAVE_MS_MAX: Final[Ms] = 800  # after the hosts: connections, threads
EXIT_BAD_SETTINGS: Final = 2
EXIT_HOST_LOST: Final = 70
GARBAGE_MIN: Final = 20_000  # objects that may form cycles, between two looks for such cycles
Build: TypeAlias = Callable[[Runtime], Awaitable[Sequence[Host]]]


def main(name: str, build: Build, *, stop_ms_max: Ms = STOP_MS_MAX) -> None:
    """Run the service until SIGTERM or SIGINT; exit 0 then, 2 for bad settings, or if the log is
    at a level that this release cannot read.

    `stop_ms_max`: how long the hosts together may take to stop before they are abandoned.
    """
    try:
        settings = load(RuntimeSettings)
    except SettingsError as error:
        sys.stderr.write(f"{name} cannot start:\n{error}\n")
        sys.exit(EXIT_BAD_SETTINGS)
    configure(name, settings.log_level, settings.secrets())
    start_traces(name)
    spare_collector()
    try:
        uvloop.run(_serve_watched(name, build, settings, stop_ms_max))
    except SettingsError as error:
        log_event(LOG, logging.CRITICAL, "process.settings_invalid", why=error)
        sys.exit(EXIT_BAD_SETTINGS)
    except ReleaseTooOld as error:
        log_event(LOG, logging.CRITICAL, "process.release_too_old", why=error)
        sys.exit(EXIT_BAD_SETTINGS)
    finally:
        stop_traces()


def spare_collector() -> None:
    """Run the cyclic garbage collector rarely: states and messages have no reference cycles.

    With Python's default threshold of 700 a replay spends a third of its time in the collector.
    """
    gc.freeze()
    gc.set_threshold(GARBAGE_MIN, 50, 100)


async def _serve_watched(
    name: str, build: Build, settings: RuntimeSettings, stop_ms_max: Ms
) -> None:
    with watched_event_loop(EXIT_HOST_LOST):
        await serve(name, build, settings, stop_ms_max)


async def serve(name: str, build: Build, settings: RuntimeSettings, stop_ms_max: Ms) -> None:
    """Connect, run the hosts, stop them in their order when a signal comes."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGUSR2, log_all_tasks)
    log_event(LOG, logging.INFO, "process.starting")
    probes = open_probes(settings.metrics_port, str(settings.metrics_host))
    work = asyncio.create_task(_live(name, build, settings, stop, stop_ms_max, probes), name=name)
    stopping = _await_stop(stop)
    await asyncio.wait((work, stopping.ended), return_when=asyncio.FIRST_COMPLETED)
    if stop.is_set():
        # end the process even if a thread is stuck in a request; all state is in the log
        timer = threading.Timer((stop_ms_max + LEAVE_MS_MAX) / 1_000, os._exit, (0,))
        timer.daemon = True
        timer.start()
    await asyncio.wait((work,))  # ends by itself, or with that timer
    await stopping.stop()
    try:
        result_of(work)
    except (HostUnstoppable, StrayCancellation) as error:
        log_event(LOG, logging.CRITICAL, "process.gave_up", why=error)
        logging.shutdown()
        os._exit(EXIT_HOST_LOST)  # an orderly exit would wait for the run that does not end
    log_event(LOG, logging.INFO, "process.stopped")


def open_probes(port: int | None, host: str = LOOPBACK) -> Probes | None:
    """Serve health and metrics from now on; None: no port is set. Raises SettingsError."""
    try:
        return None if port is None else Probes(port, host)
    except OSError as error:
        raise SettingsError(
            f"TUNERY_METRICS_PORT: port {port} of {host} cannot be used: {error.strerror}; "
            "give each process its own, and TUNERY_METRICS_HOST an address of this machine"
        ) from error


async def _live(
    name: str,
    build: Build,
    settings: RuntimeSettings,
    stop: asyncio.Event,
    stop_ms_max: Ms,
    probes: Probes | None,
) -> None:
    opening = open_runtime(name, settings)
    runtime = await _unless(stop, opening.__aenter__())
    if runtime is None:
        return
    runtime.figures.add(certificate_ends(settings.certificates()))
    REGISTRY.register(runtime.figures)
    try:
        if probes is not None:
            probes.health = runtime.health
        levels = LevelHost(runtime)
        # announced until the other hosts have stopped
        hosts = (*await build(runtime), levels)
        await run_hosts(hosts, stop, stop_ms_max, runtime.health)
        await levels.leave()
    finally:
        REGISTRY.unregister(runtime.figures)
        await opening.__aexit__(None, None, None)


def _await_stop(stop: asyncio.Event) -> KeptTask[Any]:
    """A task that ends when the process is asked to stop."""
    return KeptTask(stop.wait, "stop", is_watched=False)


async def _unless(stop: asyncio.Event, opening: Awaitable[Runtime]) -> Runtime | None:
    """The opened runtime, or None when the process is asked to stop before."""
    task = asyncio.ensure_future(opening)
    stopping = _await_stop(stop)
    try:
        await asyncio.wait((task, stopping.ended), return_when=asyncio.FIRST_COMPLETED)
    finally:
        await stop_tasks((task, stopping.release()))
    if stop.is_set() and (task.cancelled() or not task.done()):
        return None
    return result_of(task)


async def run_hosts(
    hosts: Sequence[Host], stop: asyncio.Event, stop_ms_max: Ms, health: Health | None = None
) -> None:
    """Run all until `stop`; then cancel them one after the other, in the given order.

    Raises HostUnstoppable when one of them can neither be ended nor, therefore, run again, and
    ReleaseTooOld when an operator has raised the log above what this release can read.
    """
    health = health or Health()

    def start(host: Host) -> "asyncio.Task[None]":
        keeping = keep(host, health, stop_ms_max=stop_ms_max + LEAVE_MS_MAX)
        return asyncio.create_task(keeping, name=f"keep {host.name}")

    kept = {number: start(host) for number, host in enumerate(hosts)}
    announcing = KeptTask(lambda: _announce(hosts, health), "announce", is_watched=False)
    stopping = _await_stop(stop)
    try:
        while not stop.is_set():
            await asyncio.wait(
                (stopping.ended, *kept.values()), return_when=asyncio.FIRST_COMPLETED
            )
            for number in [number for number, task in kept.items() if task.done()]:
                if _is_final(hosts[number], kept.pop(number), health):
                    continue
                await asyncio.sleep(BACKOFF.first_ms / 1_000)
                kept[number] = start(hosts[number])
    finally:
        await stop_tasks((announcing.release(), stopping.release()))
        await _cancel([(hosts[number], kept[number]) for number in sorted(kept)], stop_ms_max)


def _is_final(host: Host, task: "asyncio.Task[None]", health: Health) -> bool:
    """Return whether the host stopped for good; if not, it must be started again.

    Raises HostUnstoppable, ReleaseTooOld. The task that keeps a host running ends in no other
    way, so any other error is a defect and is logged as one.
    """
    try:
        result_of(task)
    except (HostUnstoppable, ReleaseTooOld):
        raise
    except Exception as error:
        log_event(LOG, logging.CRITICAL, "host.keeper_lost", error, host=host.name, why=error)
        health.mark_failing(host.name, "cancelled" if task.cancelled() else "failed")
        return False
    return True


async def _announce(hosts: Sequence[Host], health: Health) -> None:
    await asyncio.gather(*(host.ready() for host in hosts))
    health.has_started = True
    log_event(LOG, logging.INFO, "process.ready", hosts=", ".join(host.name for host in hosts))


async def _cancel(kept: Sequence[tuple[Host, "asyncio.Task[None]"]], stop_ms_max: Ms) -> None:
    """Cancel one after the other; all of them together get `stop_ms_max`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + stop_ms_max / 1_000
    for _, task in kept:
        task.cancel()
        await asyncio.wait((task,), timeout=max(0.0, deadline - loop.time()))
    for host, task in kept:
        if not task.done():
            log_event(LOG, logging.ERROR, "host.not_stopped", host=host.name)
