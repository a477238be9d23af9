"""The one catalogue of topics: key, retention, writer, readers. Topics are created from it."""

from typing import Final

from schemas import account, dataset, job, model, pool, senders, session
from schemas.answers import NUMBERED_ANSWERS, CountAnswers
from schemas.streams import (
    FOREVER,
    LEVELS_TOPIC,
    RELEASES_TOPIC,
    SNAPSHOTS_TOPIC,
    Stream,
    Topic,
)
from schemas.units import DAY_MS, HOUR_MS

#: owner of each stream; a command may name a stream as its source if its sender owns it
SOURCES: Final = {
    "account": "billing",
    "dataset": "ingest",
    "job": "scheduler",
    "pool": "scheduler",
    "model": "registry",
    "session": "scheduler",
}
ACCOUNT: Final = Stream(
    "account",
    "tenant",
    SOURCES["account"],
    ("billing", "gateway", "notifier", "exporter"),
    account.Command,
    account.Event,
    permits=senders.ACCOUNT,
    sources=SOURCES,
    counters={NUMBERED_ANSWERS: CountAnswers, account.NUMBERED_EXPORTS: account.Announce},
)
DATASET: Final = Stream(
    "dataset",
    "tenant",
    SOURCES["dataset"],
    ("ingest", "billing", "gateway"),
    dataset.Command,
    dataset.Event,
    permits=senders.DATASET,
    sources=SOURCES,
)
JOB: Final = Stream(
    "job",
    "tenant",
    SOURCES["job"],
    ("scheduler", "gateway", "eval", "registry", "notifier", "watcher"),
    job.Command,
    job.Event,
    permits=senders.JOB,
    sources=SOURCES,
)
POOL: Final = Stream(
    "pool",
    "pool",
    SOURCES["pool"],
    ("scheduler", "billing", "gateway", "exporter"),
    pool.Command,
    pool.Event,
    permits=senders.POOL,
    sources=SOURCES,
)
MODEL: Final = Stream(
    "model",
    "tenant",
    SOURCES["model"],
    ("registry", "billing", "gateway", "ingest", "eval"),
    model.Command,
    model.Event,
    permits=senders.MODEL,
    sources=SOURCES,
)
SESSION: Final = Stream(
    "session",
    "session",
    SOURCES["session"],
    ("scheduler", "trainer", "billing", "gateway", "ingest", "exporter"),
    session.Command,
    session.Event,
    permits=senders.SESSION,
    sources=SOURCES,
)
STREAMS: Final = {stream.name: stream for stream in (ACCOUNT, DATASET, JOB, POOL, MODEL, SESSION)}
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
ENDS: Final = Topic(  # of attempts, for who watches their telemetry
    "tunery.ends.v1", "job", DAY_MS, ("watcher",), ("watcher",), durable=False
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
ASSIGNMENTS: Final = Topic(  # an agent reads its partition, which few other nodes share
    "tunery.assignments.v1",
    "agent",
    DAY_MS,
    ("scheduler",),
    ("trainer",),
    durable=False,  # an owner of the pool that begins a term writes all of it anew
    partitions=32,
)
AUDIT: Final = Topic("tunery.audit.v1", "installation", FOREVER, ("gateway",), ("gateway",))
AUDIT_PARTITION: Final = 0  # the only one that is used, so that its records have one order
SNAPSHOTS: Final = Topic(
    SNAPSHOTS_TOPIC,
    "stream/partition/slot",
    FOREVER,
    OWNERS,
    (*OWNERS, "trainer"),
    compacted=True,
)
_OWN_TOPICS: Final = (
    *(topic for stream in STREAMS.values() for topic in (stream.commands, stream.journal)),
    TELEMETRY,
    WATCHES,
    ENDS,
    SPEEDS,
    PEERS,
    HEARTBEATS,
    ASSIGNMENTS,
    AUDIT,
    SNAPSHOTS,
)
SERVICES: Final = tuple(
    sorted({name for topic in _OWN_TOPICS for name in (*topic.writers, *topic.readers)})
)
#: to which level operators have raised the log; no service may write it
LEVELS: Final = Topic(LEVELS_TOPIC, "stream/level", FOREVER, (), SERVICES, compacted=True)
#: what each process can read, for the operator who raises the level
RELEASES: Final = Topic(RELEASES_TOPIC, "process", DAY_MS, SERVICES, (), compacted=True)
TOPICS: Final = (*_OWN_TOPICS, LEVELS, RELEASES)
#: no node is called like who else has an account: an auditor must not take one for the other
RESERVED_NODE_IDS: Final = frozenset({*SERVICES, "operator", "kafka"})
