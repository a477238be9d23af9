"""Delivers webhooks. One row of the to-do list is one delivery, tried for up to three days.

The runtime's EffectHost retries within minutes; receivers are away for hours. So this host leases
its rows itself and gives each back with the pause that its own schedule says.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, assert_never
from uuid import uuid5

import msgspec
from standardwebhooks.webhooks import Webhook

from schemas.account import DeliveryDue, DeliveryOutcome, EndDelivery
from schemas.ids import NAMESPACE
from schemas.sealed import REDACTED
from schemas.units import Ms
from services.notifier.domain.message import body
from services.notifier.domain.schedule import ATTEMPTS_MAX, pause_ms
from services.notifier.domain.target import Forbidden
from services.notifier.ports import Answer, Outbound, Unreachable
from services.notifier.project import DELIVER, SECRETS
from tunery.runtime.bus.abstract import AppendUnknown, Unavailable
from tunery.runtime.ports import Runtime
from tunery.runtime.seal.abstract import KeyDestroyed
from tunery.runtime.seal.sealer import Sealer
from tunery.runtime.seal.webhooks import webhook_secret
from tunery.runtime.store.abstract import TODOS_CHANNEL, Leased, StoreUnavailable
from tunery.runtime.telemetry.logs import log_event

LOG: Final = logging.getLogger("tunery.notifier")
LEASE_MS: Final[Ms] = 60_000  # far above the time limit of one attempt
POLL_MS: Final[Ms] = 500
OUTAGE_MS: Final[Ms] = 2_000
SEND_RETRIES_MAX: Final = 10  # within the lease
SETTLE_MS: Final[Ms] = 30_000  # time for the outcome to come back as the end of the row
STOP_MS_MAX: Final[Ms] = 1_000
GONE: Final = 410


@dataclass(frozen=True)
class Ended:
    """The delivery is over, well or not."""

    outcome: DeliveryOutcome
    status: int | None
    why: str = ""


@dataclass(frozen=True)
class Failed:
    """This attempt did not arrive; another may."""

    status: int | None
    why: str
    retry_after_ms: Ms | None = None


def signed_headers(
    due: DeliveryDue, payload: bytes, secrets: Sequence[str], at: Ms
) -> dict[str, str]:
    """Standard Webhooks. `webhook-id` is the event's: repeats and other endpoints share it.

    One signature for each secret; receivers accept a message when one of them is theirs.
    """
    seconds = at // 1000
    moment = datetime.fromtimestamp(seconds, UTC)
    signatures = [
        Webhook(secret).sign(due.event_id, moment, payload.decode()) for secret in secrets
    ]
    return {
        "content-type": "application/json",
        "user-agent": "tunery-webhooks/1",
        "webhook-id": due.event_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(signatures),
    }


async def attempt(
    outbound: Outbound, seal: Sealer, due: DeliveryDue, tenant: str, versions: Sequence[int], at: Ms
) -> Ended | Failed:
    """Try once, signed with these versions of the secret. 410 Gone is the end, 2xx is success."""
    payload = body(due)
    try:
        url = seal.open(due.url)
        if url == REDACTED:
            return Ended("refused", None, "the tenant's data was erased")
        secrets = [webhook_secret(seal, tenant, due.endpoint_id, version) for version in versions]
        answer = await outbound.post(url, signed_headers(due, payload, secrets, at), payload)
    except KeyDestroyed as error:
        return Ended("refused", None, str(error))
    except Forbidden as error:
        return Ended("refused", None, str(error))
    except Unreachable as error:
        return Failed(None, str(error))
    except Exception as error:  # a row that can never be sent must end by its schedule as well
        log_event(LOG, logging.ERROR, "delivery broke", error, id=due.delivery_id)
        return Failed(None, type(error).__name__)
    return _judged(answer)


def _judged(answer: Answer) -> Ended | Failed:
    if 200 <= answer.status < 300:
        return Ended("delivered", answer.status)
    if answer.status == GONE:
        return Ended("gone", answer.status, "the receiver says that it is gone")
    return Failed(answer.status, f"status {answer.status}", answer.retry_after_ms)


class DeliveryHost:
    """Implements `Host`. `jitter_ppm` draws from [0, JITTER_PPM]."""

    name = "deliveries"

    def __init__(
        self,
        runtime: Runtime,
        outbound: Outbound,
        concurrency: int,
        jitter_ppm: Callable[[], int],
    ) -> None:
        self._runtime, self._store, self._outbound = runtime, runtime.store, outbound
        self._concurrency, self._jitter_ppm = concurrency, jitter_ppm
        self._wake, self._ready = asyncio.Event(), asyncio.Event()

    async def ready(self) -> None:
        await self._ready.wait()

    async def run(self) -> None:
        running: set[asyncio.Task[None]] = set()
        try:
            async with self._store.listen(TODOS_CHANNEL, self._heard):
                self._ready.set()
                while True:
                    await self._start_some(running)
        finally:
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(tuple(running), timeout=STOP_MS_MAX / 1000)

    def _heard(self, kind: str) -> None:
        if kind in ("", DELIVER):
            self._wake.set()

    async def _start_some(self, running: set[asyncio.Task[None]]) -> None:
        self._wake.clear()
        for row in await self._lease(self._concurrency - len(running)):
            task = asyncio.create_task(self._work(row), name=f"delivery {row.id}")
            running.add(task)
            task.add_done_callback(partial(self._over, running))
        try:
            async with asyncio.timeout(POLL_MS / 1000):
                await self._wake.wait()
        except TimeoutError:
            return

    def _over(self, running: set[asyncio.Task[None]], task: asyncio.Task[None]) -> None:
        running.discard(task)
        self._wake.set()

    async def _lease(self, free: int) -> Sequence[Leased]:
        if free <= 0:
            return ()
        try:
            return await self._store.lease(DELIVER, free, LEASE_MS)
        except StoreUnavailable as error:
            log_event(LOG, logging.WARNING, "no deliveries", why=error)
            await self._runtime.clock.sleep(OUTAGE_MS)
            return ()

    async def _work(self, row: Leased) -> None:
        """What goes wrong around an attempt leaves the row to its lease: it is tried again."""
        try:
            await self._deliver(row)
        except (Unavailable, AppendUnknown, StoreUnavailable) as error:
            log_event(LOG, logging.WARNING, "delivery waits", id=row.id, why=error)
            await self._give_back(row, OUTAGE_MS)
        except asyncio.CancelledError:
            await self._give_back(row, 0)
            raise
        except Exception as error:
            log_event(LOG, logging.ERROR, "delivery left its row", error, id=row.id)

    async def _give_back(self, row: Leased, delay_ms: Ms) -> None:
        """This attempt does not count: it was not the receiver's fault."""
        try:
            async with asyncio.timeout(STOP_MS_MAX / 1000):
                await self._store.release(row, delay_ms, counts=False)
        except (StoreUnavailable, TimeoutError) as error:
            log_event(LOG, logging.WARNING, "row not given back", id=row.id, why=error)

    async def _deliver(self, row: Leased) -> None:
        due = msgspec.json.decode(row.body, type=DeliveryDue)
        now = self._runtime.clock.now_ms()
        versions = await self._versions(row.tenant, due.endpoint_id, now)
        came = await attempt(self._outbound, self._runtime.seal, due, row.tenant, versions, now)
        fields: dict[str, Any] = {"id": row.id, "tenant": row.tenant, "attempt": row.attempt}
        match came:
            case Ended():
                log_event(LOG, logging.INFO, f"delivery {came.outcome}", why=came.why, **fields)
                await self._end(row, came)
            case Failed():
                attempts_max = 1 if due.once else ATTEMPTS_MAX
                pause = pause_ms(row.attempt, self._jitter_ppm(), came.retry_after_ms, attempts_max)
                log_event(LOG, logging.WARNING, "delivery failed", why=came.why, **fields)
                if pause is None:
                    await self._end(row, Ended("gave_up", came.status, came.why))
                else:
                    await self._store.release(row, pause, came.why)
            case _:
                assert_never(came)

    async def _versions(self, tenant: str, endpoint_id: str, at: Ms) -> Sequence[int]:
        """Of the endpoint's secret: the newest, and the one before while a rotation overlaps."""
        (row,) = await self._store.rows(SECRETS, {"tenant": tenant, "id": endpoint_id})
        overlaps = row["previous_until"] is not None and at < row["previous_until"]
        return [row["version"], row["version"] - 1][: 1 + overlaps]

    async def _end(self, row: Leased, ended: Ended) -> None:
        """Tell `account`; the Projector removes the row when it reads that there."""
        command = EndDelivery(
            delivery_id=row.id, outcome=ended.outcome, attempts=row.attempt, status=ended.status
        )
        command_id = str(uuid5(NAMESPACE, f"effect/notifier/{row.kind}/{row.id}/{row.attempt}"))
        await self._send(row, command, command_id)
        await self._store.release(row, SETTLE_MS)

    async def _send(self, row: Leased, command: EndDelivery, command_id: str) -> None:
        """Patient, because the receiver has the webhook already; a repeat is the same command."""
        for retry in range(SEND_RETRIES_MAX + 1):
            try:
                await self._runtime.sender.send(
                    "account", row.key, row.tenant, command, command_id=command_id
                )
                return
            except (Unavailable, AppendUnknown) as error:
                if retry == SEND_RETRIES_MAX:
                    raise
                log_event(LOG, logging.WARNING, "outcome not sent", id=row.id, why=error)
                await self._runtime.clock.sleep(OUTAGE_MS)
