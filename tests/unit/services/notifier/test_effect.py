"""Billing and the notifier together over memory, towards a receiver that is real."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args

import pytest
from prometheus_client import REGISTRY
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from schemas.account import (
    Announce,
    CreateEndpoint,
    CreateTenant,
    DeleteEndpoint,
    Deliver,
    DeliveryDue,
    DeliveryEnded,
    DeliveryOutcome,
    EndpointDeleted,
    Limits,
    PlanTerms,
    RotateEndpoint,
    WebhookEvent,
)
from schemas.endpoints import Confirmation, ConfirmEndpoint, EndpointTerms
from schemas.envelope import Message
from schemas.streams import PARTITIONS
from schemas.topics import ACCOUNT, STREAMS, TOPICS
from services.billing.app import ACCOUNTS
from services.notifier.adapters.http import HttpOutbound
from services.notifier.adapters.smtp import SmtpMailer
from services.notifier.app import DELIVERIES
from services.notifier.domain.schedule import RETRY_AFTER_MS_MAX
from services.notifier.effect import MailRoute, deliver
from services.notifier.ports import WebhookResponse
from tests.log_lines import logged
from tests.unit.services.notifier.mail_server import OK, MailServer, mail_server
from tests.unit.services.notifier.receiver import Receiver, Request, receiving
from tunery.platform.ports import Runtime
from tunery.platform.seal.memory import MemoryKeyStore
from tunery.platform.seal.sealer import Sealer
from tunery.platform.seal.webhooks import confirmation_code, webhook_secret
from tunery.platform.settings import RuntimeSettings
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.bus.memory import MemoryLog
from tunery.runtime.bus.sender import Sender
from tunery.runtime.clock import SystemClock
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.hosts.aggregate import AggregateHost
from tunery.runtime.hosts.effects import EffectHost
from tunery.runtime.hosts.projector import Projector
from tunery.runtime.journal.reader import START, JournalReader
from tunery.runtime.store.memory import MemoryStore
from tunery.runtime.verbs import RetryLater

SUCCEEDED = "fine_tuning.job.succeeded"
PATIENCE_S = 180
MAIL = "mailto:ops@acme.example"


@dataclass
class BusyOutbound:
    """Answers every webhook with 503."""

    retry_after_ms: int | None

    async def post(self, url: str, headers: Any, body: bytes) -> WebhookResponse:
        return WebhookResponse(503, self.retry_after_ms)

    async def close(self) -> None:
        """Nothing to free."""


@dataclass
class NotifierWorld:
    runtime: Runtime
    keys: MemoryKeyStore

    async def send(self, body: Message) -> None:
        await self.runtime.sender.send("account", "acme", "acme", body)

    def code(self) -> str:
        """What confirms the address of the endpoint."""
        return confirmation_code(self.runtime.seal, "acme", "we_1", "ops@acme.example")

    async def subscribe(self, url: str, confirmation: Confirmation | None = None) -> None:
        seal = self.runtime.seal.seal
        limits = Limits(soft_gpu_ms=1, hard_gpu_ms=1, concurrency=1)
        await self.send(
            CreateTenant(
                name=seal("acme", "Acme", "name"),
                terms=PlanTerms(lane="free", limits=limits, price_version="2026-11"),
            )
        )
        await self.send(
            CreateEndpoint(
                terms=EndpointTerms(
                    endpoint_id="we_1",
                    name=seal("acme", "hook", "name"),
                    url=seal("acme", url, "url"),
                    event_types=(SUCCEEDED,),
                    confirmation=confirmation,
                )
            )
        )

    async def announce(self, event_id: str = "evt_1") -> None:
        await self.send(
            Announce(
                event=WebhookEvent(
                    event_id=event_id,
                    event_type=SUCCEEDED,
                    object_id="ftjob-1",
                    created_at=1_795_000_000_123,
                )
            )
        )

    async def until(
        self, kind: type[Any], wanted: Callable[[Any], bool] = lambda event: True
    ) -> Any:
        """The first such event of this type in the `account` journal."""
        reader = JournalReader(self.runtime.log, ACCOUNT, dict.fromkeys(range(PARTITIONS), START))
        await reader.open()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for batch in (await reader.read(50)).values():
                    for entry in batch.accepted:
                        for event in entry.events:
                            if isinstance(event, kind) and wanted(event):
                                await reader.close()
                                return event

    async def row(self) -> dict[str, Any] | None:
        """The open delivery, taken from the store the way a host would."""
        leased = await self.runtime.store.lease_rows("deliver", 1, 0)
        return {"failure": leased[0].failure} if leased else None


@asynccontextmanager
async def running(tmp_path: Path, mail: MailRoute | None = None) -> AsyncIterator[NotifierWorld]:
    settings = RuntimeSettings(
        kafka_bootstrap="memory",
        postgres_dsn="memory",
        s3_endpoint="memory",
        s3_access_key="memory",
        s3_secret_key="in-memory",
        data_dir=tmp_path,
    )
    clock = SystemClock()
    log = MemoryLog(clock)
    await log.create(TOPICS, PARTITIONS)
    keys = MemoryKeyStore()
    runtime = Runtime(
        name="notifier",
        settings=settings,
        log=log,
        store=MemoryStore(clock),
        blobs=MemoryBlobs(),
        seal=Sealer(keys),
        sender=Sender(log, STREAMS),
        clock=clock,
    )
    outbound = HttpOutbound(allow_private=True, timeout_ms=60_000)
    hosts: tuple[Host, ...] = (
        AggregateHost(replace(runtime, name="billing"), ACCOUNTS),
        Projector(runtime, DELIVERIES),
        EffectHost(runtime, (deliver(runtime, outbound, 4, lambda: 0, mail),)),
    )
    tasks = [asyncio.create_task(host.run()) for host in hosts]
    try:
        async with asyncio.timeout(PATIENCE_S):
            for host in hosts:
                await host.ready()
        yield NotifierWorld(runtime, keys)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await outbound.close()


async def received(receiver: Receiver) -> Request:
    async with asyncio.timeout(PATIENCE_S):
        await receiver.came.wait()
    return receiver.requests[0]


async def test_a_delivery_is_signed_verified_and_ended(tmp_path: Path) -> None:
    async with running(tmp_path) as world, receiving(200) as receiver:
        await world.subscribe(receiver.url)
        await world.announce()
        ended = (await world.until(DeliveryEnded)).report
        assert (ended.outcome, ended.attempts, ended.status) == ("delivered", 1, 200)
        request = await received(receiver)
        secret = webhook_secret(world.runtime.seal, "acme", "we_1", 1)
        payload = Webhook(secret).verify(request.body, request.headers)
        assert payload == {
            "id": "evt_1",
            "object": "event",
            "created_at": 1_795_000_000,
            "type": SUCCEEDED,
            "data": {"id": "ftjob-1"},
        }
        from openai import OpenAI  # a second of import, for few tests
        from openai.types.webhooks import FineTuningJobSucceededWebhookEvent

        client = OpenAI(api_key="none", webhook_secret=secret)
        event = client.webhooks.unwrap(request.body, request.headers)
        client.close()
        assert isinstance(event, FineTuningJobSucceededWebhookEvent)
        assert event.data.id == "ftjob-1"
        await asyncio.sleep(0.2)
        assert await world.row() is None
        assert len(receiver.requests) == 1


@asynccontextmanager
async def mailing(tmp_path: Path, server: MailServer) -> AsyncIterator[NotifierWorld]:
    mailer = SmtpMailer(server.url, "tunery@acme.example", timeout_ms=60_000, plain=True)
    route = MailRoute(mailer, frozenset({"acme.example"}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("services.notifier.effect.delay_ms", lambda *_: 10)
        async with running(tmp_path, route) as world:
            yield world


async def test_an_address_gets_e_mail_once_it_is_confirmed(tmp_path: Path) -> None:
    async with mail_server("450 busy", OK) as server, mailing(tmp_path, server) as world:
        digest = sha256(world.code().encode()).hexdigest()
        await world.subscribe(MAIL, Confirmation(code_sha256=digest, delivery_id="whd_code"))
        await world.announce("evt_early")
        ended = (await world.until(DeliveryEnded)).report
        assert (ended.delivery_id, ended.outcome, ended.status) == ("whd_code", "delivered", 250)
        assert ended.attempts == 2
        text = server.received[0].get_content()
        (code,) = re.findall(r"tunery webhook confirm we_1 (\w+)", text)
        assert code == world.code()
        await world.send(
            ConfirmEndpoint(endpoint_id="we_1", code_sha256=sha256(str(code).encode()).hexdigest())
        )
        await world.announce("evt_1")
        await world.until(DeliveryEnded, lambda event: event.report.delivery_id != "whd_code")
        confirming, succeeded = server.received
        assert confirming["To"] == succeeded["To"] == "ops@acme.example"
        assert succeeded["Subject"] == "[Tunery] acme: job ftjob-1 has succeeded"
        assert "evt_1 (" in succeeded.get_content()


async def test_mail_that_the_server_refuses_for_good_ends_at_the_first_try(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with (
        mail_server("550 no mailbox ops@acme.example") as server,
        mailing(tmp_path, server) as world,
    ):
        await world.subscribe(MAIL)
        await world.announce()
        ended = (await world.until(DeliveryEnded)).report
        assert (ended.outcome, ended.attempts) == ("refused", 1)
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("tunery")]
    assert any("delivery.ended" in line for line in ours)
    assert not any("ops@" in line for line in ours)


async def test_mail_sent_again_after_a_kill_has_the_same_message_id(tmp_path: Path) -> None:
    async with mail_server() as server, mailing(tmp_path, server) as world:
        await world.subscribe(MAIL)
        await world.announce()
        due = await world.until(DeliveryDue)
        await world.until(DeliveryEnded)
        route = MailRoute(
            SmtpMailer(server.url, "tunery@acme.example", timeout_ms=60_000, plain=True),
            frozenset({"*"}),
        )
        again = deliver(world.runtime, BusyOutbound(None), 1, lambda: 0, route)
        await again.run(due, "acme", 1)  # as another process that never saw the outcome
        assert len(server.received) == 2
        assert {str(mail["Message-ID"]) for mail in server.received} == {
            f"<{due.delivery_id}@tunery>"
        }


async def test_without_a_mail_server_e_mail_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        await world.subscribe(MAIL)
        await world.announce()
        ended = (await world.until(DeliveryEnded)).report
        assert (ended.outcome, ended.attempts) == ("refused", 1)


async def test_an_endpoint_whose_receiver_answers_410_is_deleted(tmp_path: Path) -> None:
    async with running(tmp_path) as world, receiving(410) as receiver:
        await world.subscribe(receiver.url)
        await world.announce()
        ended = (await world.until(DeliveryEnded)).report
        assert (ended.outcome, ended.status) == ("gone", 410)
        assert (await world.until(EndpointDeleted)).endpoint_id == "we_1"


async def test_failed_delivery_is_tried_again_with_the_same_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.notifier.effect.delay_ms", lambda *_: 10)
    async with running(tmp_path) as world, receiving(500, 302, 200) as receiver:
        await world.subscribe(receiver.url)
        await world.announce()
        ended = (await world.until(DeliveryEnded)).report
        assert (ended.outcome, ended.attempts) == ("delivered", 3)
        assert {request.headers["webhook-id"] for request in receiver.requests} == {"evt_1"}
        assert len({request.body for request in receiver.requests}) == 1


async def test_review2_p8_delivery_that_fails_in_our_code_ends_and_its_log_names_no_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> str:
        raise LookupError("an unforeseen error about zq" + "hook.example.com")

    monkeypatch.setattr("services.notifier.effect.webhook_secret", broken)
    monkeypatch.setattr("services.notifier.effect.TRIES_MAX", 1)
    with logged("notifier") as lines:
        async with running(tmp_path) as world, receiving(200) as receiver:
            await world.subscribe(receiver.url)
            await world.announce()
            ended = (await world.until(DeliveryEnded)).report
            assert (ended.outcome, receiver.requests) == ("gave_up", [])
    (line,) = lines.of("delivery.failed")
    assert (line["why"], "in broken" in line["where"]) == ("LookupError", True)
    assert "zqhook" not in lines.text()


async def test_the_status_of_the_last_try_is_in_the_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.notifier.effect.TRIES_MAX", 1)
    async with running(tmp_path) as world, receiving(500) as receiver:
        await world.subscribe(receiver.url)
        await world.announce()
        ended = (await world.until(DeliveryEnded)).report
        assert (ended.outcome, ended.status) == ("gave_up", 500)


async def test_no_webhook_is_sent_to_an_erased_tenant(tmp_path: Path) -> None:
    async with running(tmp_path) as world, receiving(200) as receiver:
        await world.subscribe(receiver.url)
        world.keys.destroy("acme")
        await world.announce()
        assert (await world.until(DeliveryEnded)).report.outcome == "refused"
        assert receiver.requests == []


@pytest.mark.parametrize("overlap_ms", [3_600_000, 0])
async def test_while_a_rotation_overlaps_both_secrets_verify(
    tmp_path: Path, overlap_ms: int
) -> None:
    async with running(tmp_path) as world, receiving(200) as receiver:
        await world.subscribe(receiver.url)
        until = world.runtime.clock.now_ms() + overlap_ms
        await world.send(RotateEndpoint(endpoint_id="we_1", previous_until=until))
        await world.announce()
        request = await received(receiver)
        new, old = (webhook_secret(world.runtime.seal, "acme", "we_1", v) for v in (2, 1))
        Webhook(new).verify(request.body, request.headers)
        if overlap_ms:
            Webhook(old).verify(request.body, request.headers)
        else:
            with pytest.raises(WebhookVerificationError):
                Webhook(old).verify(request.body, request.headers)


async def test_delivery_that_a_client_waits_for_is_tried_once(tmp_path: Path) -> None:
    async with running(tmp_path) as world, receiving(503) as receiver:
        await world.subscribe(receiver.url)
        await world.send(
            Deliver(
                endpoint_id="we_1",
                delivery_id="del_test",
                once=True,
                event=WebhookEvent(
                    event_id="evt_test",
                    event_type=SUCCEEDED,
                    object_id="test",
                    created_at=1_795_000_000_123,
                ),
            )
        )
        ended = (await world.until(DeliveryEnded)).report
        assert (ended.outcome, ended.attempts, ended.status) == ("gave_up", 1, 503)
        assert len(receiver.requests) == 1


async def test_an_open_delivery_is_signed_with_the_secret_of_its_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.notifier.effect.delay_ms", lambda *_: 50)
    async with running(tmp_path) as world, receiving(*(500,) * 100) as receiver:
        await world.subscribe(receiver.url)
        await world.announce()
        await received(receiver)
        await world.send(RotateEndpoint(endpoint_id="we_1", previous_until=0))
        await world.send(DeleteEndpoint(endpoint_id="we_1"))
        await world.until(EndpointDeleted)
        new, old = (webhook_secret(world.runtime.seal, "acme", "we_1", v) for v in (2, 1))
        Webhook(old).verify(receiver.requests[0].body, receiver.requests[0].headers)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                last = receiver.requests[-1]
                with suppress(WebhookVerificationError):
                    Webhook(new).verify(last.body, last.headers)
                    break
                await asyncio.sleep(0.05)
        with pytest.raises(WebhookVerificationError):
            Webhook(old).verify(last.body, last.headers)


async def test_retry_after_is_honoured_within_a_limit(tmp_path: Path) -> None:
    async with running(tmp_path) as world, receiving(500) as receiver:
        await world.subscribe(receiver.url)
        await world.announce()
        due = await world.until(DeliveryDue)
        for retry_after_ms, delay_ms_min in (
            (None, 0),
            (1_000, 1_000),
            (10**12, RETRY_AFTER_MS_MAX),
        ):
            effect = deliver(world.runtime, BusyOutbound(retry_after_ms), 1, lambda: 0)
            for outcome in get_args(DeliveryOutcome):
                labels = {"outcome": outcome}
                count = REGISTRY.get_sample_value("tunery_deliveries_ended_total", labels)
                assert count is not None, "there before it happens, so that an alert sees it grow"
            with pytest.raises(RetryLater) as later:
                await effect.run(due, "acme", 1)
            assert later.value.delay_ms_min == delay_ms_min
