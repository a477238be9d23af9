"""Security, findings C1 and C2: what a stranger with a node's rights on Kafka sends is refused."""

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import httpx
import pytest
from msgspec.structs import replace

from schemas import errors
from schemas.account import AdjustInvoice, CreateKey
from schemas.billing import InvoiceAdjustment
from schemas.envelope import Message, Rejected
from schemas.keys import KeyTerms
from schemas.node import NodeSeen
from schemas.pool import ObserveNodes, RetireNode
from schemas.sealed import Sealed
from schemas.streams import Stream
from schemas.topics import ACCOUNT, JOB, POOL, STREAMS
from simulator.control_plane.samples import node
from tests.integration.services.gateway.control_plane import admin
from tests.integration.services.gateway.test_audit import noted
from tunery.local import kafka, ports
from tunery.local.stack import Stack
from tunery.platform.bus.kafka import KafkaLog
from tunery.runtime.bus.abstract import BusError, Log
from tunery.runtime.bus.sender import Sender
from tunery.runtime.bus.signing import UNSIGNED, SenderKeys
from tunery.runtime.journal.history import read_history

pytestmark = pytest.mark.security

SETTLE_S_MAX: Final = 180
HONEST, EVIL = "node.honest", "node.evil"
ELSEWHERE: Final = "strangers"  # a pool of its own, so that no job of another test is placed here
MARK: Final = {"node_id": "honest", "incarnation": "h-1"}
SECRET: Final = "tun-" + secrets.token_urlsafe(32)
FORGED_KEY: Final = CreateKey(
    terms=KeyTerms(
        key_id="key_" + secrets.token_hex(12),
        name=Sealed(key_id="local.x", nonce=b"", ciphertext=b""),
        sha256=hashlib.sha256(SECRET.encode()).hexdigest(),
        hint=SECRET[-4:],
        scopes=("admin", "read", "write"),
    )
)
CREDIT: Final = AdjustInvoice(
    adjustment=InvoiceAdjustment(
        reference="forged", amount_micro=-(10**12), currency="EUR", reason="goodwill"
    )
)
SILENT: Final = ObserveNodes(
    seen=(NodeSeen(node_id="honest", incarnation="h-1", last_seen=1, silent=True),)
)


@asynccontextmanager
async def log_as(stack: Stack, principal: str) -> AsyncIterator[KafkaLog]:
    log = KafkaLog(stack.kafka_as(principal))
    try:
        yield log
    finally:
        await log.close()


async def send(log: Log, keys: SenderKeys, stream: Stream, body: Message) -> str:
    """The id of a command that Kafka has taken."""
    key, tenant = (ELSEWHERE, "") if stream is POOL else ("local", "local")
    return await Sender(log, STREAMS, keys=keys).send(stream, key, tenant, body)


async def decided(log: Log, sent: Mapping[str, Stream]) -> dict[str, tuple[Message, ...]]:
    """The events that each command has led to."""
    events: dict[str, tuple[Message, ...]] = {}
    async with asyncio.timeout(SETTLE_S_MAX):
        while sent.keys() - events.keys():
            for stream in {stream.name for stream in sent.values()}:
                async for entry in read_history(log, STREAMS[stream]):
                    if entry.entry.command_id in sent:
                        events[entry.entry.command_id] = entry.events
    return events


async def test_security_c2_what_a_stranger_sends_with_a_nodes_rights_is_refused_and_audited(
    running: Stack,
) -> None:
    keys = running.settings.keys
    controller = ports.read(running.folders.ports)["kafka-controller"]
    await kafka.add_accounts(controller, keys, [HONEST, EVIL])
    honest, evil = keys.sender_keys(HONEST), keys.sender_keys(EVIL)
    as_gateway = replace(evil, sender="gateway")
    async with log_as(running, HONEST) as log:
        registered = {await send(log, honest, POOL, node("honest", "h-1")): POOL}
    async with log_as(running, EVIL) as log:
        try:
            await send(log, replace(evil, own={JOB.name: b"k"}), JOB, CREDIT)
            raise AssertionError("a node may write commands of jobs")
        except BusError:
            pass  # Kafka itself refuses it: finding C1
        forged = {
            await send(log, by, stream, body): stream
            for by, stream, body in (
                (UNSIGNED, ACCOUNT, CREDIT),
                (as_gateway, ACCOUNT, CREDIT),
                (evil, ACCOUNT, CREDIT),
                (as_gateway, ACCOUNT, FORGED_KEY),
                (evil, ACCOUNT, FORGED_KEY),
                (UNSIGNED, POOL, RetireNode(**MARK)),
                (replace(evil, sender=HONEST), POOL, RetireNode(**MARK)),
                (evil, POOL, RetireNode(**MARK)),
                (evil, POOL, SILENT),
            )
        }
    async with log_as(running, "operator") as log:
        events = await decided(log, {**registered, **forged})
        assert not any(isinstance(event, Rejected) for event in events[next(iter(registered))])
        refused = [event for command in forged for event in events[command]]
        assert [event.code for event in refused if isinstance(event, Rejected)] == (
            [errors.SENDER_REFUSED] * len(forged)
        )
        last = await send(log, honest, POOL, RetireNode(**MARK))
        (retired,) = (await decided(log, {last: POOL}))[last]
        assert not isinstance(retired, Rejected)
    async with httpx.AsyncClient(base_url=running.api_url) as stranger:
        headers = {"authorization": f"Bearer {SECRET}"}
        assert (await stranger.get("/v1/tenants", headers=headers)).status_code == 401
    async with admin(running) as api:
        refusals = await noted(api, 3, object_id="sender_not_permitted", kind="refusal")
        assert {entry["code"] for entry in refusals} == {errors.SENDER_REFUSED}
        assert {tuple(entry["object_ids"]) for entry in refusals} >= {
            (EVIL, name, "sender_not_permitted")
            for name in ("AdjustInvoice", "CreateKey", "ObserveNodes")
        }
