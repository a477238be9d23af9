"""Topics and streams as types, and the names of principals. The catalogue of ours is `topics`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple

from schemas.envelope import Message
from schemas.levels import LEVEL
from schemas.units import Ms

PARTITIONS: Final = 8  # everywhere, for ever: journals can be copied between installations
FOREVER: Final = -1
MESSAGE_BYTES_MAX: Final = 1_000_000
GLOBAL: Final = "*"  # key and tenant of facts of the installation: one command a partition
SNAPSHOTS_TOPIC: Final = "tunery.snapshots.v1"
LEVELS_TOPIC: Final = "tunery.levels.v1"
RELEASES_TOPIC: Final = "tunery.releases.v1"
UPGRADE_PARTITION: Final = 0  # the only one of these two topics that is used
NODE: Final = "trainer"  # the service whose rights every node has
NODE_PREFIX: Final = "node."  # of the principals of nodes, before the id
KEY_NUMBER: Final = "#"  # before the number of a node's key, from its second one on
PART: Final = ":"  # in the id of a node that shares its agent with others; in no principal


class Permit(NamedTuple):
    """Commands that a service may send."""

    sender: str  # name of the service
    commands: frozenset[type[Message]]


@dataclass(frozen=True)
class Topic:
    """A Kafka topic."""

    name: str
    key: str
    retention_ms: Ms
    # writers, readers: services that may; a secured Kafka refuses everybody else
    writers: tuple[str, ...]
    readers: tuple[str, ...]
    durable: bool = True
    compacted: bool = False
    # records are deleted after they are decided, by their reader, and never by age
    trimmed: bool = False
    # changes of a table of the service that writes it, whose processes form a group
    changelog: bool = False
    partitions: int | None = None  # None: as many as every journal has


@dataclass(frozen=True)
class Stream:
    """A topic of commands, a topic of journal, one owner per partition."""

    name: str
    key: str
    owner: str
    readers: tuple[str, ...]  # services that read the journal
    # command, event: unions that bodies are decoded with: every version there ever was
    command: Any
    event: Any
    # an old version's type → the pure function to the next version. Readers of an event get its
    # newest version.
    upcasts: tuple[tuple[type[Any], Callable[[Any], Any]], ...] = ()
    # commands that each service may send; without any, any service may send all
    permits: tuple[Permit, ...] = ()
    # streams whose reactions send commands to this one, each with its owner
    sources: Mapping[str, str] = field(default_factory=dict, hash=False)
    # commands that their senders number themselves, by the prefix of such a source's name
    counters: Mapping[str, type[Message]] = field(default_factory=dict, hash=False)
    level: int = LEVEL  # highest level of the log that this release can read

    @cached_property
    def senders(self) -> tuple[str, ...]:
        """Services that send commands."""
        return tuple(permit.sender for permit in self.permits)

    def may_send(self, service: str, command: type[Any]) -> bool:
        """Return whether a service may send a command of this type."""
        return not self.permits or any(
            permit.sender == service and command in permit.commands for permit in self.permits
        )

    def may_name(self, service: str, source: str, command: type[Any] | None) -> bool:
        """Return whether a service may name `source` as the origin of its command.

        A false source would have reactions of others dropped as repeated, and one that cannot be
        decided stops the partition.
        """
        for prefix, counted in self.counters.items():
            if source.startswith(prefix):
                return command is counted
        return not self.permits or self.sources.get(source) == service

    @cached_property
    def commands(self) -> Topic:
        return Topic(
            f"tunery.{self.name}.commands.v1",
            self.key,
            FOREVER,
            self.senders,
            (self.owner,),
            trimmed=True,
        )

    @cached_property
    def journal(self) -> Topic:
        return Topic(
            f"tunery.{self.name}.journal.v1", self.key, FOREVER, (self.owner,), self.readers
        )


def node_of(principal: str) -> str | None:
    """The id of the node that a principal is, with any of its keys; None for a service."""
    if not principal.startswith(NODE_PREFIX):
        return None
    return principal[len(NODE_PREFIX) :].partition(KEY_NUMBER)[0]


def agent_of(node_id: str) -> str:
    """Return the id by which the agent of a node proves its name: what is before `PART`.

    The nodes of a cluster, one for each of its flavors, have one agent. A machine is its own.
    """
    return node_id.partition(PART)[0]


def key_number_of(principal: str) -> int:
    """Return the number of a node's key from its principal: 1 for `node.a`, 2 for `node.a#2`."""
    return int(principal.partition(KEY_NUMBER)[2] or 1)


def service_of(principal: str) -> str:
    """The service whose grants a principal has: all nodes have those of the agent."""
    return principal if node_of(principal) is None else NODE
