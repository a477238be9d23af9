"""Access rights of services on Kafka, computed from the catalogue of topics. Pure.

A service reads and writes the topics that name it. The owner of a stream also trims its commands
and forms consumer groups under its own name, as the owner of a table does. Creating, deleting and
configuring topics is for operators.
"""

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

from schemas.topics import SERVICES, STREAMS, TOPICS
from tunery.runtime.bus.groups import owner_group, processor_group, reactor_group

OPERATOR: Final = "operator"
ALL_TOPICS: Final = "tunery."

Operation: TypeAlias = Literal["read", "write", "delete", "describe"]
Resource: TypeAlias = Literal["topic", "group"]


class KafkaGrant(NamedTuple):
    """One operation that a principal may do on Kafka."""

    resource: Resource
    name: str
    operation: Operation
    is_prefix: bool = False  # of every topic or group whose name begins with `name`


def grants_of(service: str) -> frozenset[KafkaGrant]:
    """Return all that a service may do on Kafka. Raises KeyError for a name that no topic has.

    Kafka has one operation for deleting records and deleting their topic, so the owner of a
    stream, who trims decided commands, could delete the topic of these commands. No service is
    granted this on a journal.
    """
    if service not in SERVICES:
        raise KeyError(service)
    return frozenset((*_on_topics(service), *_on_groups(service)))


def _on_topics(service: str) -> Iterator[KafkaGrant]:
    """Names and ends of all topics are visible to all: they start when the topics exist."""
    yield KafkaGrant("topic", ALL_TOPICS, "describe", is_prefix=True)
    for topic in TOPICS:
        if service in topic.writers:
            yield KafkaGrant("topic", topic.name, "write")
        if service in topic.readers:
            yield KafkaGrant("topic", topic.name, "read")
            if topic.trimmed:
                yield KafkaGrant("topic", topic.name, "delete")


def _on_groups(service: str) -> Iterator[KafkaGrant]:
    owned = [stream.name for stream in STREAMS.values() if stream.owner == service]
    for stream in owned:
        yield KafkaGrant("group", owner_group(stream), "read")
    keeps_tables = any(topic.changelog and service in topic.writers for topic in TOPICS)
    if owned or keeps_tables:
        yield KafkaGrant("group", reactor_group(service, ""), "read", is_prefix=True)
    if keeps_tables:
        yield KafkaGrant("group", processor_group(service), "read")
