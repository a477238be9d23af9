"""Kafka's settings of the topics in the catalogue."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from schemas.streams import MESSAGE_BYTES_MAX, Topic
from schemas.topics import HEARTBEATS, JOB, SNAPSHOTS, TELEMETRY, TOPICS
from tests.unit.tunery.runtime.step_clock import StepClock
from tunery.platform.bus.kafka import (
    RETRY_MS,
    KafkaSettings,
    led_partitions,
    replicas_of,
    topic_settings,
    until_led,
)
from tunery.runtime.bus.abstract import Unavailable

ONE_REPLICA: Final = 1


@pytest.mark.parametrize(
    ("hosts", "wanted", "live", "replicas"),
    [(1, None, 1, 1), (1, None, 3, 3), (3, None, 5, 3), (1, 1, 3, 1), (2, 2, 2, 2), (3, 5, 7, 5)],
)
def test_review2_p1_new_topics_get_three_replicas_where_three_brokers_live(
    hosts: int, wanted: int | None, live: int, replicas: int
) -> None:
    bootstrap = ",".join(f"kafka-{host}:9092" for host in range(hosts))
    assert replicas_of(KafkaSettings(bootstrap, wanted), live) == replicas


@pytest.mark.parametrize(("hosts", "wanted", "live"), [(1, None, 2), (3, None, 1), (3, 3, 2)])
def test_review2_p1_too_few_brokers_are_refused_with_the_setting(
    hosts: int, wanted: int | None, live: int
) -> None:
    bootstrap = ",".join(f"kafka-{host}:9092" for host in range(hosts))
    with pytest.raises(Unavailable, match=f"{live} brokers of Kafka live") as refused:
        replicas_of(KafkaSettings(bootstrap, wanted), live)
    assert "TUNERY_KAFKA_REPLICATION" in str(refused.value)


@pytest.mark.parametrize(("replicas", "min_insync"), [(1, 1), (2, 1), (3, 2), (5, 2)])
def test_of_three_replicas_two_must_have_a_record(replicas: int, min_insync: int) -> None:
    settings = topic_settings(JOB.journal, replicas)
    assert settings["min.insync.replicas"] == str(min_insync)
    assert ("flush.messages" in settings) == (replicas == 1)


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_times_are_the_brokers_and_an_unclean_leader_is_never_elected(topic: Topic) -> None:
    settings = topic_settings(topic, ONE_REPLICA)
    assert settings["message.timestamp.type"] == "LogAppendTime"
    assert settings["unclean.leader.election.enable"] == "false"
    assert settings["retention.bytes"] == "-1"
    assert int(settings["max.message.bytes"]) > MESSAGE_BYTES_MAX, "whatever brokers say"


def test_journals_and_commands_are_kept_for_ever_and_flushed_one_by_one() -> None:
    for topic in (JOB.journal, JOB.commands):
        settings = topic_settings(topic, ONE_REPLICA)
        assert (settings["cleanup.policy"], settings["retention.ms"]) == ("delete", "-1")
        assert settings["flush.messages"] == "1"


def test_replicated_topics_need_no_flush() -> None:
    settings = topic_settings(JOB.journal, 3)
    assert settings["min.insync.replicas"] == "2"
    assert "flush.messages" not in settings


@pytest.mark.parametrize("topic", [TELEMETRY, HEARTBEATS])
def test_what_is_not_durable_is_not_flushed(topic: Topic) -> None:
    settings = topic_settings(topic, ONE_REPLICA)
    assert "flush.messages" not in settings
    assert settings["retention.ms"] == str(topic.retention_ms)


def test_snapshots_are_compacted() -> None:
    assert topic_settings(SNAPSHOTS, ONE_REPLICA)["cleanup.policy"] == "compact"


UNKNOWN_TOPIC = 3
NO_LEADER = 5


def description(error_code: int, *partitions: tuple[int, int]) -> Mapping[str, Any]:
    """A topic as a broker describes it, with (error code, leader) of each partition."""
    described = [
        {"error_code": error, "partition": number, "leader": leader}
        for number, (error, leader) in enumerate(partitions)
    ]
    return {"error_code": error_code, "topic": "t", "partitions": described}


class SlowBroker:
    """Describes a topic each time as one step nearer to being known everywhere."""

    def __init__(self, *descriptions: Mapping[str, Any]) -> None:
        self.descriptions = list(descriptions)

    async def describe_topics(self, _topics: list[str]) -> list[Mapping[str, Any]]:
        return [self.descriptions.pop(0)]


async def test_creating_a_topic_waits_until_every_partition_has_a_leader() -> None:
    broker = SlowBroker(
        description(UNKNOWN_TOPIC),
        description(0, (0, 1), (NO_LEADER, -1)),
        description(0, (0, 1), (0, 1)),
        description(0),
    )
    clock = StepClock()
    await until_led(broker, ["t"], clock)
    assert clock.slept_ms == [RETRY_MS, RETRY_MS]
    assert broker.descriptions == [description(0)]


def test_an_old_partition_without_a_leader_keeps_no_process_from_starting() -> None:
    old = description(0, (0, 1), (NO_LEADER, -1), (0, 2))
    assert led_partitions([old, description(UNKNOWN_TOPIC)]) == [("t", 0), ("t", 2)]
