"""The one catalogue of topics: key, retention, writer, readers. Topics are created from it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from schemas import account, dataset, job, model, pool
from schemas.units import DAY_MS, HOUR_MS, Ms

PARTITIONS: Final = 8  # everywhere, for ever: journals can be copied between installations
FOREVER: Final = -1
MESSAGE_BYTES_MAX: Final = 1_000_000


@dataclass(frozen=True)
class Topic:
    """`writers`, `readers`: services that may; a secured Kafka refuses everybody else.

    trimmed: records are deleted after they are decided, by their reader, and never by age.
    """

    name: str
    key: str
    retention_ms: Ms
    writers: tuple[str, ...]
    readers: tuple[str, ...]
    durable: bool = True
    compacted: bool = False
    trimmed: bool = False


@dataclass(frozen=True)
class Stream:
    """A topic of commands, a topic of journal, one owner per partition.

    senders: services that send commands; readers: those that read the journal.
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
    senders: tuple[str, ...] = ()

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
    senders=(
        *("billing", "engine", "exporter", "gateway", "ingest"),
        *("notifier", "registry", "scheduler", "trainer"),
    ),
)
DATASET: Final = Stream(
    "dataset",
    "tenant",
    "ingest",
    ("ingest", "billing", "gateway"),
    dataset.Command,
    dataset.Event,
    senders=("billing", "gateway", "ingest", "registry", "scheduler"),
)
JOB: Final = Stream(
    "job",
    "tenant",
    "scheduler",
    ("scheduler", "gateway", "eval", "registry"),
    job.Command,
    job.Event,
    senders=("billing", "eval", "gateway", "ingest", "registry", "scheduler"),
)
POOL: Final = Stream(
    "pool",
    "pool",
    "scheduler",
    ("scheduler", "trainer", "billing", "gateway", "exporter"),
    pool.Command,
    pool.Event,
    senders=("gateway", "scheduler", "trainer"),
)
MODEL: Final = Stream(
    "model",
    "tenant",
    "registry",
    ("registry", "billing", "gateway", "ingest", "eval"),
    model.Command,
    model.Event,
    senders=("billing", "gateway", "registry", "scheduler"),
)
STREAMS: Final = {stream.name: stream for stream in (ACCOUNT, DATASET, JOB, POOL, MODEL)}
OWNERS: Final = tuple(sorted({stream.owner for stream in STREAMS.values()}))

TELEMETRY: Final = Topic(
    "tunery.telemetry.v1", "job", 7 * DAY_MS, ("trainer",), ("gateway",), durable=False
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
    HEARTBEATS,
    AUDIT,
    SNAPSHOTS,
)
SERVICES: Final = tuple(
    sorted({name for topic in TOPICS for name in (*topic.writers, *topic.readers)})
)
