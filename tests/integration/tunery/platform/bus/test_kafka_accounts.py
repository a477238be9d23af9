"""Rights of principals on a stack's broker: exactly those of the catalogue."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
    for_code,
)
from aiokafka.protocol.fetch import FetchRequest

from schemas.streams import NODE, PARTITIONS, Topic, service_of
from schemas.topics import ACCOUNT, JOB, SERVICES, STREAMS, TOPICS
from tests.kafka_brokers import OPEN, Broker, broker
from tests.stacks import temporary_data_dir
from tunery.local import kafka
from tunery.platform.bus.grants import OPERATOR, KafkaGrant, Operation, grants_of
from tunery.platform.bus.kafka import KafkaLog, KafkaSettings
from tunery.platform.bus.kafka_accounts import Account, provide_accounts
from tunery.platform.bus.kafka_quotas import NODE_BYTES_PER_S, producer_limits
from tunery.platform.bus.preparation import add_account, limit_nodes
from tunery.runtime.bus.abstract import BusError, Unavailable
from tunery.runtime.bus.groups import owner_group, processor_group, reactor_group

NODES: Final = ("node.a", "node.b")
PRINCIPALS: Final = (*(service for service in SERVICES if service != NODE), *NODES)
OPERATIONS: Final[tuple[Operation, ...]] = ("read", "write", "delete")
REFUSED: Final = (
    TopicAuthorizationFailedError,
    GroupAuthorizationFailedError,
    ClusterAuthorizationFailedError,
)
WAIT_MS: Final = 5_000  # for one answer; then it is asked again
ANSWER_S_MAX: Final = 180

pytestmark = [pytest.mark.security, pytest.mark.timeout(900)]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def secured() -> AsyncIterator[Broker]:
    """A broker whose topics hold what a stack's must not: the test writes wherever it may."""
    with temporary_data_dir() as folder:
        async with broker(folder) as running:
            await kafka.add_accounts(running.controller_port, running.keys, NODES)
            yield running


class Client:
    """The bare client of a principal. Each method raises what the broker answers."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.options = settings.client_options
        self.producer: Any = AIOKafkaProducer(
            **self.options, acks=1, request_timeout_ms=WAIT_MS, metadata_max_age_ms=WAIT_MS
        )
        self.reading: Any = AIOKafkaClient(**self.options, request_timeout_ms=WAIT_MS)
        self.admin: Any = AIOKafkaAdminClient(**self.options, request_timeout_ms=WAIT_MS)

    async def write(self, topic: str) -> None:
        await self.producer.send_and_wait(topic, b"{}", b"key", partition=0)

    async def read(self, topic: str) -> None:
        await self.reading.add_topic(topic)
        node = self.reading.cluster.leader_for_partition(TopicPartition(topic, 0))
        answer = await self.reading.send(node, FetchRequest(0, 0, 1_000, 0, [(topic, [(0, 0, 1)])]))
        [(_, [(_, code, *_)])] = answer.topics
        raise_for(code)

    async def delete(self, topic: str) -> None:
        """Delete no record, which needs the right to delete all of them."""
        records = {TopicPartition(topic, 0): RecordsToDelete(before_offset=0)}
        await self.admin.delete_records(records)

    async def delete_topic(self, topic: str) -> None:
        [(_, code)] = (await self.admin.delete_topics([topic])).topic_error_codes
        raise_for(code)

    async def create_topic(self, topic: str) -> None:
        answer = await self.admin.create_topics([NewTopic(topic, 1, 1)])
        raise_for(answer.topic_errors[0][1])

    async def configure(self, topic: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "1"})
        [answer] = await self.admin.alter_configs([resource])
        raise_for(answer.resources[0][0])

    async def look_at_group(self, group: str) -> None:
        await self.admin.list_consumer_group_offsets(group)

    def on_topic(self, operation: Operation) -> Callable[[str], Awaitable[None]]:
        named: dict[Operation, Callable[[str], Awaitable[None]]] = {
            "read": self.read,
            "write": self.write,
            "delete": self.delete,
        }
        return named[operation]


def raise_for(code: int) -> None:
    if code:
        raise for_code(code)


@asynccontextmanager
async def client_of(running: Broker, principal: str) -> AsyncIterator[Client]:
    client = Client(running.kafka_as(principal))
    await client.producer.start()
    await client.reading.bootstrap()
    await client.admin.start()
    try:
        yield client
    finally:
        await client.admin.close()
        await client.reading.close()
        await client.producer.stop()


async def is_refused(call: Callable[[str], Awaitable[None]], name: str) -> bool:
    """Whether the broker refuses it for want of a right. Raises what else goes wrong.

    A new broker may first have to make its topic of groups, or to become a leader.
    """
    async with asyncio.timeout(ANSWER_S_MAX):
        while True:
            try:
                await call(name)
            except REFUSED:
                return True
            except KafkaError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(0.05)
            else:
                return False


def groups() -> Iterator[str]:
    """Groups of all services, and positions of one reactor for each."""
    yield from map(owner_group, STREAMS)
    yield processor_group("watcher")
    for service in SERVICES:
        yield f"{reactor_group(service, JOB.name)}.positions"


def may_use(principal: str, group: str) -> bool:
    return any(
        grant.resource == "group"
        and (group.startswith(grant.name) if grant.is_prefix else group == grant.name)
        for grant in grants_of(service_of(principal))
    )


@pytest.mark.parametrize("principal", PRINCIPALS)
async def test_security_c1_a_principal_may_do_what_the_catalogue_says_alone(
    secured: Broker, principal: str
) -> None:
    """Every operation on every topic: a new topic, service or reader is covered by itself."""
    granted = grants_of(service_of(principal))
    async with client_of(secured, principal) as client:
        for topic in TOPICS:
            for operation in OPERATIONS:
                refused = await is_refused(client.on_topic(operation), topic.name)
                allowed = KafkaGrant("topic", topic.name, operation) in granted
                assert refused is not allowed, (principal, operation, topic.name)


@pytest.mark.parametrize("principal", PRINCIPALS)
async def test_security_c1_no_service_or_node_deletes_creates_or_configures_topics(
    secured: Broker, principal: str
) -> None:
    """But for the commands that an owner trims: Kafka has one right for records and topic."""
    async with client_of(secured, principal) as client:
        for topic in TOPICS:
            assert await is_refused(client.configure, topic.name), topic.name
            if not is_trimmed_by(topic, principal):
                assert await is_refused(client.delete_topic, topic.name), topic.name
        assert await is_refused(client.create_topic, "tunery.new.journal.v1")
        for group in groups():
            refused = await is_refused(client.look_at_group, group)
            assert refused is not may_use(principal, group), group
    more = {principal: Account(grants_of("gateway"), "own-choice")}
    with pytest.raises(Unavailable, match="ClusterAuthorizationFailed"):
        await provide_accounts(kafka.login(principal, secured.keys), secured.bootstrap, more)


def is_trimmed_by(topic: Topic, principal: str) -> bool:
    return topic.trimmed and principal in topic.readers


def test_security_c1_only_owners_write_journals() -> None:
    for stream in STREAMS.values():
        write = KafkaGrant("topic", stream.journal.name, "write")
        writers = [service for service in SERVICES if write in grants_of(service)]
        assert writers == [stream.owner]


async def test_security_c1_strangers_do_nothing(secured: Broker) -> None:
    """`sec_kafka.py` needed a port alone: it made an operator's key, read and wrote everything."""
    wrong = {"sasl_plain_password": secured.keys.kafka_password("gateway")}
    strangers = (
        secured.anybody(),
        replace(secured.anybody(), login={**kafka.login("billing", secured.keys), **wrong}),
        replace(secured.anybody(), login={**kafka.login("nobody", secured.keys)}),
        replace(
            secured.anybody(),
            login={**kafka.login("kafka", secured.keys), "sasl_mechanism": "PLAIN"},
        ),
    )
    for settings in strangers:
        log = KafkaLog(replace(settings, send_ms_max=500, request_ms_max=500))
        try:
            for call in (
                log.send(ACCOUNT.commands.name, b"k", b"v"),
                log.bounds(ACCOUNT.journal.name, 0),
                log.create(TOPICS, PARTITIONS),
                log.recreate(ACCOUNT.journal, PARTITIONS),
            ):
                with pytest.raises(BusError):
                    await call
        finally:
            await log.close()


async def test_security_c1_strangers_are_no_operators_of_the_controller(secured: Broker) -> None:
    """The controller takes requests of operators as well, at a port of its own."""
    more = {"stranger": Account(grants_of("gateway"), "own-choice")}
    attempts: tuple[dict[str, Any], ...] = (
        {},
        kafka.login(OPERATOR, secured.keys),
        {**kafka.login("gateway", secured.keys), "sasl_mechanism": "PLAIN"},
    )
    for login in attempts:
        with pytest.raises(Unavailable):
            async with asyncio.timeout(ANSWER_S_MAX):
                await provide_accounts(login, f"127.0.0.1:{secured.controller_port}", more)


async def test_grants_that_the_catalogue_no_longer_has_are_taken_away(secured: Broker) -> None:
    principal, topic = "node.former", JOB.journal.name
    former = grants_of("trainer") | {KafkaGrant("topic", topic, "read")}
    login = kafka.login(OPERATOR, secured.keys)
    password = secured.keys.kafka_password(principal)
    account = {principal: Account(former, password)}
    await provide_accounts(login, secured.bootstrap, account)
    async with client_of_new(secured, principal) as client:
        await until(client.read, topic, refused=False)
        await kafka.add_accounts(secured.controller_port, secured.keys, [principal])
        await until(client.read, topic, refused=True)


async def until(call: Callable[[str], Awaitable[None]], name: str, *, refused: bool) -> None:
    """Wait for the broker, which gets a change a moment after its controller."""
    async with asyncio.timeout(ANSWER_S_MAX):
        while await is_refused(call, name) is not refused:  # noqa: ASYNC110  # it asks the broker
            await asyncio.sleep(0.05)


@asynccontextmanager
async def client_of_new(running: Broker, principal: str) -> AsyncIterator[Client]:
    """A client of a new account, once the broker knows that account."""
    log = KafkaLog(running.kafka_as(principal))
    async with asyncio.timeout(ANSWER_S_MAX):
        while True:
            with suppress(BusError, KafkaError):
                await log.bounds(JOB.journal.name, 0)
                break
            await asyncio.sleep(0.05)
    await log.close()
    async with client_of(running, principal) as client:
        yield client


async def test_security_c1_the_folder_of_an_open_kafka_is_secured_and_keeps_its_records(
    tmp_path: Path,
) -> None:
    topic = ACCOUNT.commands
    async with broker(tmp_path, OPEN) as running:
        log = KafkaLog(running.anybody())
        await log.create(TOPICS[:2], PARTITIONS)
        await log.send(topic.name, b"k", b"of an earlier version", 0)
        await log.close()
    async with broker(tmp_path) as running:
        log = KafkaLog(running.kafka_as("billing"))
        reader = await log.reader(topic.name, {0: 0})
        async with asyncio.timeout(ANSWER_S_MAX):
            while not (records := await reader.poll(500, 10)):
                pass
        await reader.close()
        await log.close()
        assert [record.value for record in records] == [b"of an earlier version"]
        stranger = KafkaLog(replace(running.anybody(), request_ms_max=500))
        with pytest.raises(Unavailable):
            await stranger.bounds(topic.name, 0)
        await stranger.close()


async def test_security_review2_p12_a_node_writes_no_more_than_its_quota(secured: Broker) -> None:
    """Without one a node that somebody took over filled the disks of the brokers."""
    own = KafkaSettings(secured.bootstrap, login=kafka.login(OPERATOR, secured.keys))
    limits = await producer_limits(own.login, own.bootstrap)
    assert {name: limits.get(name) for name in NODES} == dict.fromkeys(NODES, NODE_BYTES_PER_S)
    assert all(name.startswith("node.") for name in limits)
    await limit_nodes(own, ["node.a"], 4_000_000)
    await add_account(own, "node.a", secured.keys.kafka_password("node.a"))  # keeps its own
    await add_account(own, "node.new", "password")
    await add_account(own, "eval", secured.keys.kafka_password("eval"))
    limits = await producer_limits(own.login, own.bootstrap)
    expected = {"node.a": 4_000_000, "node.b": NODE_BYTES_PER_S, "node.new": NODE_BYTES_PER_S}
    assert limits.items() >= expected.items()
    assert "eval" not in limits
    with pytest.raises(Unavailable, match="ClusterAuthorizationFailed"):
        await limit_nodes(replace(own, login=kafka.login("node.a", secured.keys)), ["node.a"], 1)
