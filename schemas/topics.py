"""The one catalogue of topics: key, retention, writer, readers. Topics are created from it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from schemas import account, dataset, job, model, pool, senders
from schemas.senders import Permit
from schemas.units import DAY_MS, HOUR_MS, Ms

PARTITIONS: Final = 8  # everywhere, for ever: journals can be copied between installations
FOREVER: Final = -1
MESSAGE_BYTES_MAX: Final = 1_000_000


@dataclass(frozen=True)
class Topic:
    """`writers`, `readers`: services that may; a secured Kafka refuses everybody else.

    trimmed: records are deleted after they are decided, by their reader, and never by age.
    changelog: of a table of the service that writes it, whose processes form a group.
    """

    name: str
    key: str
    retention_ms: Ms
    writers: tuple[str, ...]
    readers: tuple[str, ...]
    durable: bool = True
    compacted: bool = False
    trimmed: bool = False
    changelog: bool = False


@dataclass(frozen=True)
class Stream:
    """A topic of commands, a topic of journal, one owner per partition.

    permits: which service may send which commands; without any, any service may send all.
    readers: services that read the journal.
    `command` and `event` are the unions that bodies are decoded with: every version there ever was.
    upcasts: an old version's type → the pure function to the next version. Readers of an event
    get its newest version.
    """

    name: str
    key: str
    owner: str
    readers: tuple[str, ...]
    command: Any
    event: Any
    upcasts: tuple[tuple[type[Any], Callable[[Any], Any]], ...] = ()
    permits: tuple[Permit, ...] = ()

    @cached_property
    def senders(self) -> tuple[str, ...]:
        """Services that send commands."""
        return tuple(permit.sender for permit in self.permits)

    def may_send(self, service: str, command: type[Any]) -> bool:
        """Whether a service may send a command of this type."""
        return not self.permits or any(
            permit.sender == service and command in permit.commands for permit in self.permits
        )

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


ACCOUNT: Final = Stream(
    "account",
    "tenant",
    "billing",
    ("billing", "gateway", "notifier", "exporter"),
    account.Command,
    account.Event,
    permits=senders.ACCOUNT,
)
DATASET: Final = Stream(
    "dataset",
    "tenant",
    "ingest",
    ("ingest", "billing", "gateway"),
    dataset.Command,
    dataset.Event,
    permits=senders.DATASET,
)
JOB: Final = Stream(
    "job",
    "tenant",
    "scheduler",
    ("scheduler", "gateway", "eval", "registry", "notifier"),
    job.Command,
    job.Event,
    permits=senders.JOB,
)
POOL: Final = Stream(
    "pool",
    "pool",
    "scheduler",
    ("scheduler", "trainer", "billing", "gateway", "exporter"),
    pool.Command,
    pool.Event,
    permits=senders.POOL,
)
MODEL: Final = Stream(
    "model",
    "tenant",
    "registry",
    ("registry", "billing", "gateway", "ingest", "eval"),
    model.Command,
    model.Event,
    permits=senders.MODEL,
)
STREAMS: Final = {stream.name: stream for stream in (ACCOUNT, DATASET, JOB, POOL, MODEL)}
OWNERS: Final = tuple(sorted({stream.owner for stream in STREAMS.values()}))

TELEMETRY: Final = Topic(
    "tunery.telemetry.v1",
    "job",
    7 * DAY_MS,
    ("trainer",),
    ("gateway", "watcher", "notifier"),
    durable=False,
)
WATCHES: Final = Topic(  # what watcher keeps of each job
    "tunery.watches.v1", "job", FOREVER, ("watcher",), ("watcher",), compacted=True, changelog=True
)
SPEEDS: Final = Topic(  # of nodes of one type at the same work
    "tunery.speeds.v1", "type/work", DAY_MS, ("watcher",), ("watcher",), durable=False
)
PEERS: Final = Topic(  # the newest ones of each node
    "tunery.peers.v1",
    "type/work",
    FOREVER,
    ("watcher",),
    ("watcher",),
    compacted=True,
    changelog=True,
)
HEARTBEATS: Final = Topic(
    "tunery.heartbeats.v1", "node", HOUR_MS, ("trainer",), ("scheduler",), durable=False
)
AUDIT: Final = Topic("tunery.audit.v1", "installation", FOREVER, ("gateway",), ("gateway",))
AUDIT_PARTITION: Final = 0  # the only one that is used, so that its records have one order
SNAPSHOTS: Final = Topic(
    "tunery.snapshots.v1",
    "stream/partition/slot",
    FOREVER,
    OWNERS,
    (*OWNERS, "trainer"),
    compacted=True,
)
TOPICS: Final = (
    *(topic for stream in STREAMS.values() for topic in (stream.commands, stream.journal)),
    TELEMETRY,
    WATCHES,
    SPEEDS,
    PEERS,
    HEARTBEATS,
    AUDIT,
    SNAPSHOTS,
)
KEY_NUMBER: Final = "#"  # before the number of a node's key, from its second one on
NODE_PREFIX: Final = "node."  # of the principals of nodes, before the id


def node_of(principal: str) -> str | None:
    """The id of the node that a principal is, with any of its keys; None for a service."""
    if not principal.startswith(NODE_PREFIX):
        return None
    return principal[len(NODE_PREFIX) :].partition(KEY_NUMBER)[0]


def key_number_of(principal: str) -> int:
    """Which key of its node a sender has: its first one is not named, the next is `node.a#2`."""
    return int(principal.partition(KEY_NUMBER)[2] or 1)


SERVICES: Final = tuple(
    sorted({name for topic in TOPICS for name in (*topic.writers, *topic.readers)})
)
