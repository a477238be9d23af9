"""Preparation without a broker; `tests/integration` has it on a real one."""

import pytest

from schemas.streams import PARTITIONS
from schemas.topics import JOB, TELEMETRY, TOPICS
from tunery.platform.bus import preparation
from tunery.platform.bus.kafka import KafkaSettings, topic_settings
from tunery.platform.bus.kafka_configs import ClusterState, TopicState
from tunery.platform.bus.preparation import add_account, differences, prepare_kafka, provide_topics
from tunery.runtime.bus.abstract import Unavailable


async def test_a_broker_that_is_not_there_is_named() -> None:
    with pytest.raises(Unavailable, match=r"Kafka at 127\.0\.0\.1:1"):
        await prepare_kafka(KafkaSettings("127.0.0.1:1"), {"gateway": "gateway"})
    with pytest.raises(Unavailable, match=r"Kafka at 127\.0\.0\.1:1"):
        await add_account(KafkaSettings("127.0.0.1:1"), "node.a", "password")


async def test_review2_p1_a_broker_that_does_not_know_new_topics_yet_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topics = {
        topic.name: TopicState(topic.partitions or PARTITIONS, 3, topic_settings(topic, 3))
        for topic in TOPICS
    }
    answers = [{}, {TOPICS[0].name: topics[TOPICS[0].name]}, topics]

    async def create(*_: object) -> None:
        """The controller has them at once."""

    async def describe(*_: object) -> ClusterState:
        return ClusterState({1: {}, 2: {}, 3: {}}, {}, answers.pop(0))

    monkeypatch.setattr("tunery.platform.bus.kafka.KafkaLog.create", create)
    monkeypatch.setattr(preparation, "describe", describe)
    monkeypatch.setattr(preparation, "RETRY_MS", 1)
    assert await provide_topics(KafkaSettings("127.0.0.1:1")) == []
    assert answers == []


def test_review2_p5_a_topic_that_exists_gets_what_the_catalogue_says_now() -> None:
    there = {**topic_settings(TELEMETRY, 3), "retention.ms": "1000", "cleanup.policy": "compact"}
    changed, larger = differences(TELEMETRY, TopicState(PARTITIONS, 3, there))
    assert changed == {"retention.ms": str(TELEMETRY.retention_ms), "cleanup.policy": "delete"}
    assert larger == []


def test_review2_p5_more_than_the_catalogue_says_and_what_it_does_not_say_stay() -> None:
    more = {"max.message.bytes": "5000000", "min.insync.replicas": "3", "segment.ms": "7"}
    there = {**topic_settings(TELEMETRY, 3), "retention.ms": "-1", **more}
    changed, larger = differences(TELEMETRY, TopicState(PARTITIONS, 3, there))
    assert changed == {}
    assert len(larger) == 3
    assert f"{TELEMETRY.name}: retention.ms is -1" in larger[0]


def test_review2_p5_one_replica_is_flushed_and_what_may_not_be_seen_is_left() -> None:
    there = topic_settings(JOB.journal, 3)
    changed, _ = differences(
        JOB.journal, TopicState(PARTITIONS, 1, {**there, "flush.messages": "9"})
    )
    assert changed == {"flush.messages": "1"}
    assert differences(JOB.journal, TopicState(PARTITIONS, 1, None)) == ({}, [])
