"""Hosts effects: leases to-do rows, does the work, sends the command that tells the outcome.

The row stays until the Projector has read that outcome in the journal. A process that dies with
a lease leaves it to end; effects may overlap, and deciders take the first outcome.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any, Final
from uuid import uuid5

import msgspec

from schemas.ids import NAMESPACE
from schemas.units import Ms
from tunery.runtime.blobs.abstract import BlobsUnavailable
from tunery.runtime.bus.abstract import AppendUnknown, Unavailable
from tunery.runtime.ports import Runtime
from tunery.runtime.store.abstract import TODOS_CHANNEL, Leased, StoreUnavailable
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.telemetry.metrics import EFFECTS_ENDED, EFFECTS_RUNNING
from tunery.runtime.verbs import Effect, Send

LOG: Final = logging.getLogger("tunery.work")
POLL_MS: Final[Ms] = 500
BACKOFF_MS: Final[Ms] = 1_000
BACKOFF_MS_MAX: Final[Ms] = 60_000
OUTAGE_MS: Final[Ms] = 2_000
SETTLE_MS: Final[Ms] = 30_000  # time for the outcome to come back as the end of the row
UNHEARD_MS: Final[Ms] = 600_000  # the same, once there is nothing left to try
SEND_RETRIES_MAX: Final = 20
SEND_RETRY_MS: Final[Ms] = 1_000
RENEWALS_PER_LEASE: Final = 3
STOP_MS_MAX: Final[Ms] = 1_000
#: not the row's fault, so no attempt of it is counted
OUTAGE: Final = (StoreUnavailable, BlobsUnavailable, Unavailable, AppendUnknown)


def outcome_id(service: str, row: Leased) -> str:
    """Id of the command with this attempt's outcome: sent twice, it is the same command."""
    return str(uuid5(NAMESPACE, f"effect/{service}/{row.kind}/{row.id}/{row.attempt}"))


def backoff_ms(attempt: int) -> Ms:
    return min(BACKOFF_MS << min(attempt - 1, 16), BACKOFF_MS_MAX)


class EffectHost:
    """Implements `Host`. One loop for each effect; up to `concurrency` rows of it at a time."""

    def __init__(self, runtime: Runtime, effects: Sequence[Effect[Any]]) -> None:
        self.name = "effects " + ", ".join(effect.kind for effect in effects)
        self._runtime, self._store = runtime, runtime.store
        self._effects = tuple(effects)
        self._wake = {effect.kind: asyncio.Event() for effect in effects}
        self._ready = asyncio.Event()

    async def ready(self) -> None:
        await self._ready.wait()

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._store.listen(TODOS_CHANNEL, self._heard))
            group = await stack.enter_async_context(asyncio.TaskGroup())
            for effect in self._effects:
                group.create_task(self._serve(effect))
            self._ready.set()

    def _heard(self, kind: str) -> None:
        for event in self._wake.values() if not kind else filter(None, [self._wake.get(kind)]):
            event.set()

    async def _serve(self, effect: Effect[Any]) -> None:
        """Keep up to `concurrency` rows in work. An outage of the store ends none of them."""
        running: set[asyncio.Task[None]] = set()
        wake = self._wake[effect.kind]
        try:
            while True:
                wake.clear()
                for row in await self._lease(effect, effect.concurrency - len(running)):
                    task = asyncio.create_task(self._work(effect, row), name=f"effect {row.id}")
                    running.add(task)
                    task.add_done_callback(partial(_over, running, wake))
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_MS / 1_000):
                        await wake.wait()
        finally:
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(tuple(running), timeout=2 * STOP_MS_MAX / 1_000)

    async def _lease(self, effect: Effect[Any], free: int) -> Sequence[Leased]:
        if free <= 0:
            return ()
        try:
            return await self._store.lease(effect.kind, free, effect.lease_ms)
        except StoreUnavailable as error:
            log_event(LOG, logging.WARNING, "no to-do rows", kind=effect.kind, why=error)
            await self._runtime.clock.sleep(OUTAGE_MS)
            return ()

    async def _work(self, effect: Effect[Any], row: Leased) -> None:
        """One row: run the effect while the lease is renewed beside it."""
        running = EFFECTS_RUNNING.labels(effect.kind)
        attempt = asyncio.create_task(self._attempt(effect, row))
        renewing = asyncio.create_task(self._renew(effect, row))
        running.inc()
        try:
            await asyncio.wait((attempt, renewing), return_when=asyncio.FIRST_COMPLETED)
            if attempt.done():
                _ended(effect, attempt.result())
            else:
                _ended(effect, "lost")
        except asyncio.CancelledError:
            await self._give_back(row)
            raise
        except Exception as error:  # the row's lease ends by itself and it is tried again
            log_event(LOG, logging.ERROR, "effect left its row", error, kind=row.kind, id=row.id)
        finally:
            running.dec()
            for task in (attempt, renewing):
                task.cancel()
            await asyncio.wait((attempt, renewing), timeout=STOP_MS_MAX / 1_000)

    async def _give_back(self, row: Leased) -> None:
        """The process stops: another one may start on the row at once."""
        with suppress(StoreUnavailable, TimeoutError):
            async with asyncio.timeout(STOP_MS_MAX / 1_000):
                await self._store.release(row, 0, counts=False)

    async def _renew(self, effect: Effect[Any], row: Leased) -> None:
        """Returns when the row is no longer ours."""
        while True:
            await self._runtime.clock.sleep(effect.lease_ms // RENEWALS_PER_LEASE)
            try:
                if not await self._store.renew(row, effect.lease_ms):
                    return
            except StoreUnavailable as error:
                log_event(
                    LOG, logging.WARNING, "lease not renewed", kind=row.kind, id=row.id, why=error
                )

    async def _attempt(self, effect: Effect[Any], row: Leased) -> str:
        """What became of it, as a label."""
        body = msgspec.json.decode(row.body, type=effect.body)
        if row.attempt > effect.attempts_max:
            failure = row.failure or f"the work on it was cut off {row.attempt - 1} times"
            return await self._exhaust(effect, row, body, failure)
        try:
            send = await effect.run(body, row.tenant)
        except OUTAGE as error:
            log_event(LOG, logging.WARNING, "effect waits", kind=row.kind, id=row.id, why=error)
            await self._store.release(row, OUTAGE_MS, str(error), counts=False)
            return "retried"
        except Exception as error:  # whatever an effect raises is its row's failure
            return await self._failed(effect, row, body, error)
        if send is None:
            await self._store.finish(row)
            return "nothing"
        await self._send(row, send)
        await self._store.release(row, SETTLE_MS)
        return "sent"

    async def _failed(self, effect: Effect[Any], row: Leased, body: Any, error: Exception) -> str:
        failure = f"{type(error).__name__}: {error}"
        fields = {"kind": row.kind, "id": row.id, "tenant": row.tenant, "attempt": row.attempt}
        log_event(LOG, logging.ERROR, "effect failed", error, **fields)
        if row.attempt >= effect.attempts_max:
            return await self._exhaust(effect, row, body, failure)
        await self._store.release(row, backoff_ms(row.attempt), failure)
        return "retried"

    async def _exhaust(self, effect: Effect[Any], row: Leased, body: Any, failure: str) -> str:
        """Say that it will not be done. Said again after UNHEARD_MS while the row is there."""
        log_event(LOG, logging.ERROR, "effect exhausted", kind=row.kind, id=row.id, why=failure)
        send = effect.exhausted(body, row.tenant, failure)
        if send is None:
            await self._store.finish(row)
            return "exhausted"
        await self._send(row, send)
        await self._store.release(row, UNHEARD_MS, failure)
        return "exhausted"

    async def _send(self, row: Leased, send: Send) -> None:
        """Until it is in the log; deciders take a repeat as such. Raises after SEND_RETRIES_MAX."""
        for retry in range(SEND_RETRIES_MAX + 1):
            try:
                await self._runtime.sender.send(
                    send.stream,
                    send.key,
                    send.tenant,
                    send.body,
                    command_id=outcome_id(self._runtime.name, row),
                    partition=send.partition,
                )
                return
            except (Unavailable, AppendUnknown) as error:
                if retry == SEND_RETRIES_MAX:
                    raise
                log_event(
                    LOG, logging.WARNING, "outcome not sent", kind=row.kind, id=row.id, why=error
                )
                await self._runtime.clock.sleep(SEND_RETRY_MS)


def _ended(effect: Effect[Any], outcome: str) -> None:
    EFFECTS_ENDED.labels(effect.kind, outcome).inc()


def _over(running: set[asyncio.Task[None]], wake: asyncio.Event, task: asyncio.Task[None]) -> None:
    running.discard(task)
    wake.set()
