"""Hosts effects: leases to-do rows, does the work, sends the command that carries the outcome.

The row stays until the Projector has read that outcome in the journal. The lease of a row ends by
itself when its process dies; so effects may overlap, and deciders take the first outcome.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final
from uuid import uuid5

import msgspec

from schemas.ids import NAMESPACE
from schemas.units import DAY_MS, Ms
from tunery.runtime.backoff import every, retry
from tunery.runtime.blobs.abstract import BlobsUnavailable
from tunery.runtime.bus.abstract import AppendUnknown, Unavailable
from tunery.runtime.ports import Ports
from tunery.runtime.store.abstract import TODOS_CHANNEL, LeasedRow, StoreUnavailable
from tunery.runtime.tasks import run_together
from tunery.runtime.telemetry.logs import log_context, log_event, subject_of
from tunery.runtime.telemetry.metrics import EFFECTS_ENDED, EFFECTS_RUNNING
from tunery.runtime.telemetry.traces import traced
from tunery.runtime.verbs import Effect, GoOnLater, Outage, RetryLater, Send
from tunery.runtime.watchdog import beat

LOG: Final = logging.getLogger("tunery.work")
POLL_MS: Final[Ms] = 500
OUTAGE_MS: Final[Ms] = 2_000
SETTLE_MS: Final[Ms] = 30_000  # time for the outcome to come back as the end of the row
EXHAUSTED_MS: Final[Ms] = 600_000  # the same, once there is nothing left to try
SEND_TRIES_MAX: Final = 21
SEND_RETRY_MS: Final[Ms] = 1_000
RENEWALS_PER_LEASE: Final = 3
STOP_MS_MAX: Final[Ms] = 1_000
CONTINUED: Final = "continued"  # every few seconds for hours, so nothing is said of it
#: limit of one try, far above any effect's own; the lease of a row whose work hangs lasts till then
RUN_MS_MAX: Final[Ms] = DAY_MS
#: outages, which do not count as a failed try
OUTAGE: Final = (StoreUnavailable, BlobsUnavailable, Outage, Unavailable, AppendUnknown)


def outcome_id(service: str, row: LeasedRow) -> str:
    """Id of the command with this try's outcome: sent twice, it is the same command."""
    return str(uuid5(NAMESPACE, f"effect/{service}/{row.kind}/{row.id}/{row.try_number}"))


class EffectHost:
    """Implements `Host`. One loop for each effect; up to `concurrency` rows of it at a time."""

    def __init__(self, runtime: Ports, effects: Sequence[Effect[Any]]) -> None:
        self.name = "effects " + ", ".join(effect.kind for effect in effects)
        self._runtime, self._store = runtime, runtime.store
        self._effects = tuple(effects)
        self._wake = {effect.kind: asyncio.Event() for effect in effects}
        self._ready = asyncio.Event()
        for effect in effects:
            EFFECTS_ENDED.labels(effect.kind, "exhausted")  # an alert sees it grow from 0

    async def ready(self) -> None:
        await self._ready.wait()

    async def run(self) -> None:
        async with self._store.listen(TODOS_CHANNEL, self._wake_up):
            self._ready.set()
            await run_together(
                {f"effect {effect.kind}": partial(self._serve, effect) for effect in self._effects}
            )

    def _wake_up(self, kind: str) -> None:
        for event in self._wake.values() if not kind else filter(None, [self._wake.get(kind)]):
            event.set()

    async def _serve(self, effect: Effect[Any]) -> None:
        """Keep up to `concurrency` rows in work. An outage of the store ends none of them."""
        running: set[asyncio.Task[None]] = set()
        wake = self._wake[effect.kind]
        try:
            while True:
                beat("waiting")
                wake.clear()
                for row in await self._lease(effect, effect.concurrency - len(running)):
                    task = asyncio.create_task(self._work(effect, row), name=f"effect {row.id}")
                    running.add(task)
                    task.add_done_callback(partial(_row_ended, running, wake))
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_MS / 1_000):
                        await wake.wait()
        finally:
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(tuple(running), timeout=2 * STOP_MS_MAX / 1_000)

    async def _lease(self, effect: Effect[Any], free: int) -> Sequence[LeasedRow]:
        if free <= 0:
            return ()
        try:
            return await self._store.lease_rows(
                effect.kind, free, effect.row_lease_ms, effect.of_tenant_max
            )
        except StoreUnavailable as error:
            log_event(LOG, logging.WARNING, "effect.rows_not_leased", kind=effect.kind, why=error)
            await self._runtime.clock.sleep(OUTAGE_MS)
            return ()

    async def _work(self, effect: Effect[Any], row: LeasedRow) -> None:
        """Work on one row. Every log line about it carries the ids in its body."""
        about = log_context(kind=row.kind, row_id=row.id, tenant=row.tenant)
        span = traced(row.trail, f"effect {row.kind}", "consumer", row_id=row.id, tenant=row.tenant)
        with about, span:
            try:
                body = msgspec.json.decode(row.body, type=effect.body)
                with log_context(**subject_of(body), try_number=row.try_number):
                    await self._run_leased(effect, row, body)
            except Exception as error:  # the row's lease ends by itself and it is tried again
                log_event(LOG, logging.ERROR, "effect.row_left", error)

    async def _run_leased(self, effect: Effect[Any], row: LeasedRow, body: Any) -> None:
        """Run the effect while the lease of its row is renewed beside it.

        These tasks live as long as a row is in work. A stray cancellation of one of them ends the
        work; the row is given back, or its lease ends by itself, and it is tried again.
        """
        running = EFFECTS_RUNNING.labels(effect.kind)
        working = asyncio.create_task(self._try(effect, row, body))
        renewing = asyncio.create_task(self._renew(effect, row))
        running.inc()
        try:
            await asyncio.wait((working, renewing), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                _note_end(effect, working.result())
            else:
                log_event(LOG, logging.WARNING, "effect.row_lease_lost")
                _note_end(effect, "lost")
        except asyncio.CancelledError:
            await self._give_back(row)
            raise
        finally:
            running.dec()
            for task in (working, renewing):
                task.cancel()
            await asyncio.wait((working, renewing), timeout=STOP_MS_MAX / 1_000)

    async def _give_back(self, row: LeasedRow) -> None:
        """Release the row, because this process stops and another one may continue at once."""
        with suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(STOP_MS_MAX / 1_000):
                await self._store.release(row, 0, counts=False)

    async def _renew(self, effect: Effect[Any], row: LeasedRow) -> None:
        """Renew the lease of the row; returns when it was lost."""
        while True:
            await self._runtime.clock.sleep(effect.row_lease_ms // RENEWALS_PER_LEASE)
            try:
                if not await self._store.renew(row, effect.row_lease_ms):
                    return
            except StoreUnavailable as error:
                log_event(LOG, logging.WARNING, "effect.row_lease_not_renewed", why=error)

    async def _try(self, effect: Effect[Any], row: LeasedRow, body: Any) -> str:
        """One try of the row; returns its result as a label of the metric."""
        if row.try_number > effect.tries_max and effect.may_give_up:
            failure = row.failure or f"the work on it was cut off {row.try_number - 1} times"
            return await self._exhaust(effect, row, body, failure)
        try:
            async with asyncio.timeout(RUN_MS_MAX / 1_000):
                send = await effect.run(body, row.tenant, row.try_number)
        except OUTAGE as error:
            log_event(LOG, logging.WARNING, "effect.outage", why=error)
            await self._store.release(row, OUTAGE_MS, str(error), counts=False)
            return "retried"
        except GoOnLater as pause:
            await self._store.release(row, pause.delay_ms, counts=pause.counts)
            return CONTINUED
        except RetryLater as later:
            log_event(LOG, logging.WARNING, "effect.retry_later", why=later)
            return await self._retry(effect, row, body, str(later), later.delay_ms_min)
        except Exception as error:  # whatever an effect raises is its row's failure
            log_event(LOG, logging.ERROR, "effect.failed", error)
            return await self._retry(effect, row, body, f"{type(error).__name__}: {error}")
        if send is not None:
            await self._send(row, send)
        elif effect.unrecorded:
            await self._store.finish(row)
            return "nothing"
        await self._store.release(row, SETTLE_MS)
        return "sent" if send else "known"

    async def _retry(
        self, effect: Effect[Any], row: LeasedRow, body: Any, failure: str, delay_ms_min: Ms = 0
    ) -> str:
        """After a failed try: give the row back until its next one, or exhaust it."""
        if row.try_number >= effect.tries_max:
            return await self._exhaust(effect, row, body, failure)
        delay_ms = max(effect.delay_ms(row.try_number), delay_ms_min)
        await self._store.release(row, delay_ms, failure)
        return "retried"

    async def _exhaust(self, effect: Effect[Any], row: LeasedRow, body: Any, failure: str) -> str:
        """Send the command of an exhausted row; again after EXHAUSTED_MS while the row exists."""
        log_event(LOG, logging.ERROR, "effect.exhausted", why=failure)
        if effect.exhausted is not None:
            await self._send(row, effect.exhausted(body, row.tenant, failure))
        elif effect.unrecorded:
            await self._store.finish(row)
            return "exhausted"
        await self._store.release(row, EXHAUSTED_MS, failure)
        return "exhausted"

    async def _send(self, row: LeasedRow, send: Send) -> None:
        """Send until it is in the log; deciders recognise repeats. Raises after SEND_TRIES_MAX."""
        await retry(
            partial(
                self._runtime.sender.send,
                send.stream,
                send.key,
                send.tenant,
                send.body,
                command_id=outcome_id(self._runtime.name, row),
                partition=send.partition,
            ),
            (Unavailable, AppendUnknown),
            clock=self._runtime.clock,
            backoff=every(SEND_RETRY_MS),
            tries_max=SEND_TRIES_MAX,
            on_failure=_note_unsent,
        )


def _note_unsent(error: Exception, try_number: int) -> None:
    log_event(LOG, logging.WARNING, "effect.outcome_not_sent", tries=try_number, why=error)


def _note_end(effect: Effect[Any], outcome: str) -> None:
    if outcome == CONTINUED:
        return
    log_event(LOG, logging.INFO, "effect.ended", outcome=outcome)
    EFFECTS_ENDED.labels(effect.kind, outcome).inc()


def _row_ended(
    running: set[asyncio.Task[None]], wake: asyncio.Event, task: asyncio.Task[None]
) -> None:
    running.discard(task)
    wake.set()
