"""Kafka's settings of the topics in the catalogue."""

from dataclasses import replace

import pytest

from schemas.topics import HEARTBEATS, JOB, SNAPSHOTS, TELEMETRY, TOPICS, Topic
from tunery.runtime.bus.kafka import KafkaSettings, topic_settings

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
