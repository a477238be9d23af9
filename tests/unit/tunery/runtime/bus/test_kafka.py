"""Kafka's settings of the topics in the catalogue."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from schemas.topics import HEARTBEATS, JOB, SNAPSHOTS, TELEMETRY, TOPICS, Topic
from tests.unit.tunery.runtime.step_clock import StepClock
from tunery.runtime.bus.kafka import RETRY_MS, KafkaSettings, topic_settings, until_led

ONE_BROKER = KafkaSettings("127.0.0.1:9092")


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_times_are_the_brokers_and_an_unclean_leader_is_never_elected(topic: Topic) -> None:
    settings = topic_settings(topic, ONE_BROKER)
    assert settings["message.timestamp.type"] == "LogAppendTime"
    assert settings["unclean.leader.election.enable"] == "false"
    assert settings["retention.bytes"] == "-1"


def test_journals_and_commands_are_kept_for_ever_and_flushed_one_by_one() -> None:
    for topic in (JOB.journal, JOB.commands):
        settings = topic_settings(topic, ONE_BROKER)
        assert (settings["cleanup.policy"], settings["retention.ms"]) == ("delete", "-1")
        assert settings["flush.messages"] == "1"


def test_replicated_topics_need_no_flush() -> None:
    replicated = replace(ONE_BROKER, replication=3, min_insync=2, flush_each=False)
    settings = topic_settings(JOB.journal, replicated)
    assert settings["min.insync.replicas"] == "2"
    assert "flush.messages" not in settings


@pytest.mark.parametrize("topic", [TELEMETRY, HEARTBEATS])
def test_what_is_not_durable_is_not_flushed(topic: Topic) -> None:
    settings = topic_settings(topic, ONE_BROKER)
    assert "flush.messages" not in settings
    assert settings["retention.ms"] == str(topic.retention_ms)


def test_snapshots_are_compacted() -> None:
    assert topic_settings(SNAPSHOTS, ONE_BROKER)["cleanup.policy"] == "compact"


UNKNOWN_TOPIC = 3
NO_LEADER = 5


def description(error_code: int, *partitions: tuple[int, int]) -> Mapping[str, Any]:
    """A topic as a broker describes it, with (error code, leader) of each partition."""
    described = [{"error_code": error, "leader": leader} for error, leader in partitions]
    return {"error_code": error_code, "topic": "t", "partitions": described}


class SlowBroker:
    """Describes a topic each time as one step nearer to being known everywhere."""

    def __init__(self, *descriptions: Mapping[str, Any]) -> None:
        self.descriptions = list(descriptions)

    async def describe_topics(self, _topics: list[str]) -> list[Mapping[str, Any]]:
        return [self.descriptions.pop(0)]


async def test_a_created_topic_is_waited_for_until_every_partition_has_a_leader() -> None:
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
