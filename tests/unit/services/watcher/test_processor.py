"""Faust's application has our settings: the login, the names, and nothing that it creates."""

import ssl
from pathlib import Path
from typing import Any

from faust.auth import OAuthCredentials, SASLCredentials, SSLCredentials

from schemas.streams import PARTITIONS
from schemas.topics import PEERS, WATCHES
from services.watcher.processor import Processor, credentials
from tunery.platform.bus.grants import grants_of
from tunery.platform.settings import LogSettings
from tunery.runtime.bus.groups import processor_group
from tunery.runtime.bus.partitioner import partition_of


def settings(**fields: Any) -> LogSettings:
    return LogSettings(kafka_bootstrap="a:1, b:2", **fields)


def test_it_creates_no_topic_and_serves_nothing(tmp_path: Path) -> None:
    processor = Processor(settings(), tmp_path)
    conf = processor._app.conf
    assert (conf.topic_allow_declare, conf.topic_disable_leader) == (False, True)
    assert (conf.web_enabled, conf.table_standby_replicas) == (False, 0)
    assert [str(url) for url in conf.broker] == ["aiokafka://a:1", "aiokafka://b:2"]
    assert processor.watches.changelog_topic.get_topic_name() == WATCHES.name
    assert processor.peers.changelog_topic.get_topic_name() == PEERS.name
    assert conf.id == processor_group("watcher")
    assert (conf.id, "read") in {(g.name, g.operation) for g in grants_of("watcher")}


def test_a_jobs_changes_are_where_its_telemetry_is(tmp_path: Path) -> None:
    table = Processor(settings(), tmp_path).watches
    keys = [f"ftjob-{number}".encode() for number in range(50)]
    partitions = {table.partition_for_key(key) for key in keys}
    assert partitions == set(range(PARTITIONS))
    assert all(table.partition_for_key(key) == partition_of(key) for key in keys)


def test_it_logs_in_as_the_service_does(tmp_path: Path) -> None:
    assert credentials(settings()) is None
    name = {"kafka_username": "watcher", "kafka_password": "secret"}
    scram = credentials(
        settings(
            kafka_security_protocol="SASL_PLAINTEXT", kafka_sasl_mechanism="SCRAM-SHA-512", **name
        )
    )
    assert isinstance(scram, SASLCredentials)
    assert (scram.protocol.value, scram.mechanism.value) == ("SASL_PLAINTEXT", "SCRAM-SHA-512")
    assert (scram.username, scram.password) == ("watcher", "secret")

    over_tls = credentials(
        settings(kafka_security_protocol="SASL_SSL", kafka_sasl_mechanism="PLAIN", **name)
    )
    assert over_tls.protocol.value == "SASL_SSL"
    assert isinstance(over_tls.ssl_context, ssl.SSLContext)

    token = tmp_path / "token"
    token.write_text("abc")
    oauth = credentials(
        settings(
            kafka_security_protocol="SASL_SSL",
            kafka_sasl_mechanism="OAUTHBEARER",
            kafka_token_file=token,
        )
    )
    assert isinstance(oauth, OAuthCredentials)
    assert isinstance(credentials(settings(kafka_security_protocol="SSL")), SSLCredentials)
