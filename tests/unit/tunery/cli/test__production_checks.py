"""`tunery doctor --production`: what is wrong with an installation, each with its fix."""

import datetime
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from schemas.topics import TOPICS
from tests.certificates import Authority
from tests.unit.tunery.runtime.tools.test_upgrade import process
from tunery.cli import _production_checks as checks
from tunery.cli._production_checks import DatabaseFacts, certificates, database, key_folders
from tunery.local.paths import DataDir
from tunery.platform.bus.grants import KafkaGrant
from tunery.platform.bus.kafka import KafkaSettings, topic_settings
from tunery.platform.bus.kafka_configs import ClusterState, TopicState

OWN = KafkaSettings("b1:9092")
WELL = DatabaseFacts(
    version=160_003,
    is_encrypted=True,
    fsync="on",
    connections_max=200,
    connections=40,
    ahead_s=0.1,
)


def cluster(replicas: int = 3, live: int = 3, **changed: str) -> ClusterState:
    """A cluster with all topics, of which the first has these settings changed."""
    states = {
        topic.name: TopicState(8, replicas, topic_settings(topic, replicas)) for topic in TOPICS
    }
    first = TOPICS[0].name
    names = {name.replace("_", "."): value for name, value in changed.items()}
    states[first] = TopicState(8, replicas, {**(states[first].settings or {}), **names})
    return ClusterState({n: {} for n in range(live)}, {}, states)


def fixes(diagnoses: Any) -> dict[str, str]:
    return {each.name: each.fix for each in diagnoses if each.fix}


def test_a_well_kept_cluster_has_no_finding() -> None:
    assert not fixes([checks.brokers(cluster(), OWN), *checks.topics(cluster())])


def test_topics_with_one_replica_and_a_single_broker_are_named() -> None:
    there = cluster(replicas=1, live=1)
    assert "three brokers" in checks.brokers(there, OWN).fix
    (finding,) = checks.topics(there)
    assert (finding.name, "add replicas" in finding.fix) == ("replicas", True)
    assert finding.detail.startswith("1 in tunery.account")


def test_topics_whose_time_clients_choose_are_named_and_so_are_missing_ones() -> None:
    (finding,) = checks.topics(cluster(message_timestamp_type="CreateTime"))
    assert (finding.name, finding.fix) == ("topic time", "tunery kafka prepare")
    assert "LogAppendTime is off" in finding.detail
    (finding,) = checks.topics(cluster(retention_bytes="5"))
    assert (finding.name, finding.fix) == ("topics", "tunery kafka prepare")
    there = cluster()
    without = ClusterState(there.brokers, {}, dict(list(there.topics.items())[1:]))
    (finding,) = checks.topics(without)
    assert finding.detail == f"missing: {TOPICS[0].name}"


def test_brokers_whose_settings_do_not_fit_or_are_hidden_are_named() -> None:
    there = cluster()
    unfit = ClusterState({n: {"log.cleaner.enable": "false"} for n in range(3)}, {}, there.topics)
    assert "log.cleaner.enable=true" in checks.brokers(unfit, OWN).fix
    silent = ClusterState({1: {}, 2: {}}, {3: "ClusterAuthorizationFailed"}, there.topics)
    assert "broker 3" in checks.brokers(silent, OWN).detail


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate has expired (_ssl.c:1)", "renew"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate", "TUNERY_KAFKA_CA_FILE"),
        ("SSLError('wrong version number')", "TUNERY_KAFKA_SECURITY_PROTOCOL"),
        ("SaslAuthenticationFailed()", "TUNERY_KAFKA_PASSWORD"),
        ("ConnectionRefusedError()", "start the brokers"),
    ],
)
def test_why_kafka_does_not_answer_has_its_own_fix(error: str, fix: str) -> None:
    assert fix in checks.unreachable_kafka(error).fix


def test_a_right_that_is_missing_for_one_topic_is_named() -> None:
    assert checks.rights({}, 9).is_well
    finding = checks.rights({"eval": [KafkaGrant("topic", "tunery.job.journal.v1", "read")]}, 9)
    assert finding.detail == "eval may not read topic tunery.job.journal.v1"
    assert finding.fix.startswith("tunery kafka prepare")


def test_a_second_installation_and_nodes_without_a_quota_are_named() -> None:
    mine, other = process(1), process(1, proven=False)
    assert checks.strangers([mine]).is_well
    assert "another installation" in checks.strangers([mine, other]).detail
    node = replace(mine, service="node.gpu-07", process="node.gpu-07@a:1")
    assert checks.quotas([mine], {}).is_well
    assert checks.quotas([node], {"node.gpu-07": 1.0}).is_well
    finding = checks.quotas([node], {})
    assert finding.fix == "tunery kafka prepare --node gpu-07"


def test_what_is_wrong_with_a_database_is_named() -> None:
    assert not fixes(database(WELL))
    worst = DatabaseFacts(
        version=140_000,
        is_encrypted=False,
        fsync="off",
        connections_max=100,
        connections=95,
        ahead_s=-60.0,
    )
    finding = list(database(worst))
    text = " ".join(each.detail + each.fix for each in finding)
    for word in ("sslmode", "fsync = on", "max_connections", "60 s behind", "NTP"):
        assert word in text


def test_a_bucket_that_answers_strangers_is_public() -> None:
    assert checks.bucket("tunery", [403, 404]).is_well
    assert "public" in checks.bucket("tunery", [403, 200]).detail


def test_keys_are_their_owners_alone_and_wrapped(tmp_path: Path) -> None:
    keys, roots = tmp_path / "keys", tmp_path / "roots"
    for folder in (keys, roots):
        folder.mkdir(mode=0o700)
    assert "encryption wrap" in fixes(key_folders(keys, None))["roots"]
    root = roots / "default.json"
    root.touch(0o600)
    assert not fixes(key_folders(keys, roots))
    root.chmod(0o640)
    assert fixes(key_folders(keys, roots)) == {"roots": f"chmod -R go= {roots}"}
    keys.chmod(0o755)
    assert fixes(key_folders(keys, roots))["keys"] == f"chmod -R go= {keys}"


def test_certificates_that_end_or_cannot_be_read_are_named(tmp_path: Path) -> None:
    Authority(tmp_path)
    file = tmp_path / "ca.pem"
    now = datetime.datetime.now(datetime.UTC).timestamp()
    assert not fixes(certificates({"kafka_ca_file": file}, now - 60 * 86_400))
    (finding,) = certificates({"kafka_ca_file": file}, now + 20 * 366 * 86_400)
    assert "days ago" in finding.detail
    file.write_text("no certificate")
    (finding,) = certificates({"kafka_ca_file": file}, now)
    assert finding.fix == f"write a certificate in PEM to {file}"


def test_protections_that_are_turned_off_are_named() -> None:
    def settings(**changed: str) -> Any:
        well = {"command_keys": "k", "confine": "require", "blob_encryption": "on"}
        return SimpleNamespace(**{**well, **changed})

    assert not list(checks.switches(settings()))
    off = settings(command_keys="off", confine="prefer", blob_encryption="off")
    assert {each.name for each in checks.switches(off)} == {
        "signatures",
        "confinement",
        "encryption",
    }


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = SimpleNamespace(total=100 * 1024**3, used=0, free=95 * 1024**3)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert checks.disk(tmp_path / "not" / "there").is_well
    usage.free = 9 * 1024**3
    assert checks.disk(tmp_path).fix


def test_settings_that_are_missing_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("TUNERY_")]:
        monkeypatch.delenv(name)
    (finding,) = checks.check_production(DataDir(tmp_path))
    assert finding.name == "settings"
    assert "TUNERY_KAFKA_BOOTSTRAP is not set" in finding.detail
