"""Keeps a host running: again after a failure, a stray cancellation, or a hang.

Each run is its own task, so no cancellation state of one run reaches the next. The watchdog
looks at the run: a host whose loops report neither work nor waiting for too long is restarted.
"""

import asyncio
import logging
from typing import Final

from schemas.units import Ms
from tunery.runtime.backoff import Backoff
from tunery.runtime.blobs.abstract import BlobsUnavailable
from tunery.runtime.bus.abstract import BusError
from tunery.runtime.health import Health
from tunery.runtime.hosts.abstract import Host, HostStopped
from tunery.runtime.journal.acceptance import PartitionStopped
from tunery.runtime.levels import ReleaseTooOld
from tunery.runtime.store.abstract import StoreUnavailable, Superseded
from tunery.runtime.tasks import (
    CANCEL_MS_MAX,
    StrayCancellation,
    note_stray,
    result_of,
    stack_of,
    stop_tasks,
)
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.telemetry.metrics import HOST_HANGS, HOST_RESTARTS
from tunery.runtime.watchdog import LOOK_EVERY_MS, SILENCE_MS_MAX, HostWatch

LOG: Final = logging.getLogger("tunery.process")
#: its limit is how much longer than its cause an outage may last here
BACKOFF: Final = Backoff(200, 3_000)
BACKOFF_RESET_MS: Final[Ms] = 60_000  # a host that ran this long starts again at once
STEADY_MS: Final[Ms] = 5_000  # a host that ran this long after a failure is healthy again
#: a server is away: that is no bug, so no trace
OUTAGE: Final = (StoreUnavailable, BlobsUnavailable, BusError)
#: what a host raises when it must not run again
FINAL: Final = (HostStopped, PartitionStopped, Superseded)


class HostHung(Exception):
    """A host's loops reported nothing for too long."""


class HostUnstoppable(Exception):
    """A run of a host could not be ended, so the host cannot run again in this process."""


async def keep(
    host: Host, health: Health | None = None, *, stop_ms_max: Ms = CANCEL_MS_MAX
) -> None:
    """Run the host; again, with back-off, whenever a run ends; never again once it diverged.

    `stop_ms_max`: how long a run may take to end once it is cancelled. Raises HostUnstoppable,
    and ReleaseTooOld where the whole process must end.
    """
    health = health or Health()
    loop = asyncio.get_running_loop()
    failures = 0
    for counted in (HOST_RESTARTS, HOST_HANGS):
        counted.labels(host.name)  # 0: so that the first is seen as growth
    while True:
        begun = loop.time()
        try:
            await _run_once(host, health, stop_ms_max)
            log_event(LOG, logging.ERROR, "host.ended", host=host.name)
            health.mark_failing(host.name, "ended")
        except FINAL as error:
            log_event(
                LOG, logging.CRITICAL, "host.stopped_for_good", error, host=host.name, why=error
            )
            return
        except HostUnstoppable:
            health.mark_failing(host.name, "hung")
            raise
        except ReleaseTooOld:
            health.mark_failing(host.name, "ended")
            raise
        except StrayCancellation as error:
            note_stray(host.name, error)
            health.mark_failing(host.name, "cancelled")
        except HostHung as error:
            log_event(LOG, logging.CRITICAL, "host.hung", host=host.name, why=error)
            HOST_HANGS.labels(host.name).inc()
            health.mark_failing(host.name, "hung")
        except OUTAGE as error:
            log_event(LOG, logging.WARNING, "host.waits", host=host.name, why=error)
            health.mark_failing(host.name, "waits for a server")
        except Exception as error:  # a bug in one host must not end the others
            log_event(LOG, logging.ERROR, "host.failed", error, host=host.name, why=error)
            health.mark_failing(host.name, "failed")
        if loop.time() - begun > BACKOFF_RESET_MS / 1_000:
            failures = 0
        failures += 1
        HOST_RESTARTS.labels(host.name).inc()
        await asyncio.sleep(BACKOFF.delay_ms(failures) / 1_000)


async def _run_once(host: Host, health: Health, stop_ms_max: Ms) -> None:
    """One run in its own task, watched.

    Raises what the run raised; StrayCancellation, HostHung; HostUnstoppable when the run was
    cancelled and does not end.
    """
    watch = HostWatch(host.name)
    # A context of its own carries the reports of this run, and of no other one, to its watch.
    run = asyncio.create_task(host.run(), name=host.name, context=watch.context())
    hung: str | None = None
    try:
        hung = await _watch(run, watch, host.name, health)
    finally:
        late = await stop_tasks((run,), stop_ms_max)
    if late:
        raise HostUnstoppable(f"{host.name} was cancelled and did not end in {stop_ms_max} ms")
    if hung is not None:
        raise HostHung(hung)
    result_of(run)


async def _watch(
    run: "asyncio.Task[None]", watch: HostWatch, name: str, health: Health
) -> str | None:
    """Return when the run has ended, or has hung: then which loops are silent, and where."""
    loop = asyncio.get_running_loop()
    begun, pause_ms = loop.time(), LOOK_EVERY_MS
    if name not in health.failing:
        health.mark_running(name)
    else:
        pause_ms = min(STEADY_MS, LOOK_EVERY_MS)
    while True:
        await asyncio.wait((run,), timeout=pause_ms / 1_000)
        if run.done():
            return None
        if name in health.failing and loop.time() - begun >= STEADY_MS / 1_000:
            health.mark_running(name)
        pause_ms = LOOK_EVERY_MS
        silent = watch.look(SILENCE_MS_MAX // LOOK_EVERY_MS)
        if silent:
            loops = ", ".join(f"{reports.name} ({reports.activity})" for reports in silent)
            return f"no report from {loops} for {SILENCE_MS_MAX} ms; waits in: {stack_of(run)}"
