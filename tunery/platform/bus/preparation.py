"""Prepares a Kafka for the services: its settings checked, their topics, and their rights."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from aiokafka.errors import KafkaError

from schemas.streams import PARTITIONS, Topic, node_of, service_of
from schemas.topics import TOPICS
from tunery.platform.bus.broker_settings import Violation, violations
from tunery.platform.bus.grants import grants_of
from tunery.platform.bus.kafka import REPLICAS, RETRY_MS, KafkaLog, KafkaSettings, topic_settings
from tunery.platform.bus.kafka_accounts import Account, await_logins, provide_accounts
from tunery.platform.bus.kafka_configs import (
    GROUPS,
    ClusterState,
    TopicState,
    alter_topics,
    describe,
)
from tunery.platform.bus.kafka_quotas import NODE_BYTES_PER_S, limit_producers, producer_limits
from tunery.runtime.backoff import every, retry
from tunery.runtime.bus.abstract import Unavailable
from tunery.runtime.clock import SystemClock

BROKERS_ENOUGH: Final = 1_000  # for a topic that exists already
#: an operator may have set more of these than the catalogue says: never lowered
RAISED_ONLY: Final = frozenset(
    {"retention.ms", "retention.bytes", "max.message.bytes", "min.insync.replicas"}
)
NO_LIMIT: Final = frozenset({"retention.ms", "retention.bytes"})  # where -1 is the most


class Unsuitable(Exception):
    """Kafka is set so that Tunery cannot run on it. `problems` says what, and what to do."""

    def __init__(self, problems: Sequence[Violation]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


async def prepare_kafka(
    settings: KafkaSettings, names: Mapping[str, str], node_bytes_per_s: int | None = None
) -> list[str]:
    """Check the brokers, provide topics, and give principals exactly their rights.

    settings: settings of an operator; names: Kafka's name of each service and node;
    node_bytes_per_s: quota of each node, None: that of `limit_nodes`. Returns what an operator may
    want to change. Raises Unavailable, Unsuitable.
    """
    notes = [*await check_brokers(settings), *await provide_topics(settings)]
    accounts = {
        name: Account(grants_of(service_of(principal))) for principal, name in names.items()
    }
    await provide_accounts(settings.login, settings.bootstrap, accounts)
    nodes = [name for principal, name in names.items() if node_of(principal) is not None]
    await limit_nodes(settings, nodes, node_bytes_per_s)
    return notes


async def limit_nodes(
    settings: KafkaSettings, names: Sequence[str], bytes_per_s: int | None = None
) -> None:
    """Limit what each node may write to a broker in a second.

    names: Kafka's names of the nodes; bytes_per_s: None: NODE_BYTES_PER_S for those that have no
    quota, and the others keep theirs. Raises Unavailable.
    """
    if not names:
        return
    known = await producer_limits(settings.login, settings.bootstrap) if bytes_per_s is None else {}
    limits = {name: bytes_per_s or NODE_BYTES_PER_S for name in names if name not in known}
    await limit_producers(settings.login, settings.bootstrap, limits)


async def check_brokers(settings: KafkaSettings) -> list[str]:
    """Compare each live broker's settings with the table; returns what would be better.

    Raises Unavailable, and Unsuitable where Tunery cannot run.
    """
    there = await describe(settings, ())
    # Kafka needs the other brokers to make this topic, not to use it.
    enough = BROKERS_ENOUGH if GROUPS in there.topics else there.live
    unfit = [
        violation
        for broker, values in there.brokers.items()
        for violation in violations(values, broker, settings.session_timeout_ms, enough)
    ]
    if required := [violation for violation in unfit if violation.required]:
        raise Unsuitable(required)
    first = {violation.name: str(violation) for violation in reversed(unfit)}
    silent = [f"broker {broker} was not checked: {why}" for broker, why in there.silent.items()]
    return [*first.values(), *silent]


async def provide_topics(settings: KafkaSettings) -> list[str]:
    """Create missing topics, and give those that exist the settings of the catalogue.

    Settings that the catalogue does not have stay as they are. Where more is safe (time and size
    that is kept, size of a record, replicas that must have it), an operator's larger value stays,
    too. Returns what an operator may want to change. Raises Unavailable, Unsuitable.
    """
    log = KafkaLog(settings)

    async def create() -> None:
        await log.create(TOPICS, PARTITIONS)

    def raise_ours(error: Exception, _try_number: int) -> None:
        if not isinstance(error.__cause__, KafkaError):  # the client may have asked a dead broker
            raise error

    again = partial(
        retry,
        errors=(Unavailable,),
        clock=SystemClock(),
        backoff=every(RETRY_MS),
        elapsed_ms_max=settings.request_ms_max,
    )
    try:
        await again(create, on_failure=raise_ours)
    finally:
        await log.close()
    there = await again(partial(_all_topics, settings))
    if problems := list(_problems(there)):
        raise Unsuitable(problems)
    changes, notes = {}, []
    for topic in TOPICS:
        state = there.topics[topic.name]
        changed, larger = differences(topic, state)
        if changed:
            changes[topic.name] = changed
        notes += larger
    if changes:
        await alter_topics(settings, changes)
    few = [topic.name for topic in TOPICS if there.topics[topic.name].replicas < REPLICAS]
    if few and there.live >= REPLICAS:
        notes.append(
            f"{len(few)} topics have fewer than {REPLICAS} replicas ({few[0]} …), and {there.live} "
            f"brokers live\n  fix: add replicas with kafka-reassign-partitions.sh"
        )
    return notes


async def _all_topics(settings: KafkaSettings) -> ClusterState:
    """Return the state of Kafka, from a broker that knows every topic of the catalogue.

    Raises Unavailable if it does not: a broker gets a new topic a moment after the controller.
    """
    there = await describe(settings, [topic.name for topic in TOPICS])
    missing = [topic.name for topic in TOPICS if topic.name not in there.topics]
    if missing:
        raise Unavailable(f"a broker does not know {len(missing)} topics yet ({missing[0]} …)")
    return there


async def topics_behind(settings: KafkaSettings) -> list[str]:
    """Topics that are missing, or have other settings than this release needs. Changes nothing.

    Raises Unavailable.
    """
    there = await describe(settings, [topic.name for topic in TOPICS])
    return [
        topic.name
        for topic in TOPICS
        if topic.name not in there.topics or differences(topic, there.topics[topic.name])[0]
    ]


def differences(topic: Topic, state: TopicState) -> tuple[dict[str, str], list[str]]:
    """Settings to change of a topic that exists, and which are larger than the catalogue's."""
    changed, larger = {}, []
    for name, wanted in topic_settings(topic, state.replicas).items():
        value = None if state.settings is None else state.settings.get(name)
        if value is None or value == wanted:  # None: not for this principal to see
            continue
        if name in RAISED_ONLY and _amount(name, value) > _amount(name, wanted):
            larger.append(f"{topic.name}: {name} is {value}, the catalogue says {wanted}: left")
        else:
            changed[name] = wanted
    return changed, larger


def _amount(name: str, value: str) -> float:
    return float("inf") if name in NO_LIMIT and value == "-1" else float(value)


def _problems(there: ClusterState) -> Iterable[Violation]:
    """Topics that exist and can never work."""
    wanted = {topic.name: topic.partitions or PARTITIONS for topic in TOPICS}
    for name, topic in there.topics.items():
        if name == GROUPS:
            continue
        if topic.partitions != wanted[name]:
            yield Violation(
                name,
                True,
                f"topic {name} has {topic.partitions} partitions, and {wanted[name]} are needed",
                "delete it if it is empty, and run `tunery kafka prepare`; it makes a new one",
            )
        needed = int((topic.settings or {}).get("min.insync.replicas") or 0)
        if needed > topic.replicas:
            yield Violation(
                name,
                True,
                f"topic {name} has min.insync.replicas={needed} and {topic.replicas} replicas, so "
                "that nothing can be written",
                f"kafka-configs.sh --alter --topic {name} --add-config min.insync.replicas="
                f"{topic_settings(TOPICS[0], topic.replicas)['min.insync.replicas']}, or add "
                "replicas",
            )


async def add_account(settings: KafkaSettings, principal: str, password: str) -> None:
    """Give a service or node this password (SCRAM-SHA-512), exactly its rights, and a node's quota.

    The brokers know it then. settings: of an operator. Raises Unavailable.
    """
    account = Account(grants_of(service_of(principal)), password)
    await provide_accounts(settings.login, settings.bootstrap, {principal: account})
    if node_of(principal) is not None:
        await limit_nodes(settings, [principal])
    login = {
        **settings.login,
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": principal,
        "sasl_plain_password": password,
    }
    await await_logins([login], settings.bootstrap)
