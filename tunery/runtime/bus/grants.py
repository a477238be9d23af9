"""Who may do what on Kafka, computed from the catalogue of topics. Pure.

A service reads and writes the topics that name it. Whoever owns a stream also trims its commands
and forms groups with a name of its own, as whoever keeps a table does. Creating, deleting and
configuring is for operators.
"""

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

from schemas.topics import NODE_PREFIX as NODE_PREFIX
from schemas.topics import SERVICES, STREAMS, TOPICS, node_of

OPERATOR: Final = "operator"
#: of nodes, each with a principal of its own: `node.` and its id
NODE: Final = "trainer"
ALL_TOPICS: Final = "tunery."

Operation: TypeAlias = Literal["read", "write", "delete", "describe"]
Resource: TypeAlias = Literal["topic", "group"]


class KafkaGrant(NamedTuple):
    """`is_prefix`: of every topic or group whose name begins with `name`."""

    resource: Resource
    name: str
    operation: Operation
    is_prefix: bool = False


def grants_of(service: str) -> frozenset[KafkaGrant]:
    """What a service may do, and no other thing. Raises KeyError for a name that no topic has.

    Kafka has one operation for deleting records and deleting their topic, so the owner of a
    stream, who trims decided commands, could delete the topic of these commands. No journal.
    """
    if service not in SERVICES:
        raise KeyError(service)
    return frozenset((*_on_topics(service), *_on_groups(service)))


def service_of(principal: str) -> str:
    """The service whose grants a principal has: all nodes have those of the agent."""
    return principal if node_of(principal) is None else NODE


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
    if owned:
        yield KafkaGrant("group", reactor_group(service, ""), "read", is_prefix=True)
    if any(topic.changelog and service in topic.writers for topic in TOPICS):
        yield KafkaGrant("group", processor_group(service), "read")


def owner_group(stream: str) -> str:
    """The group whose members own the partitions of a stream."""
    return f"tunery.{stream}.owner"


def reactor_group(service: str, stream: str) -> str:
    """The group whose members react to the journal of a stream for a service."""
    return f"tunery.{service}.reacts.{stream}"


def processor_group(service: str) -> str:
    """The group whose members process a topic for a service, and keep a table of it."""
    return f"tunery.{service}.processes"
