"""Accounts of a node: what it is known of them, before they are made."""

from pathlib import Path

import pytest

from tunery.cli._node_accounts import NodeAccounts
from tunery.local import ports
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir
from tunery.local.secrets import load_or_create
from tunery.platform.bus import preparation
from tunery.runtime.bus.abstract import Unavailable

pytestmark = pytest.mark.security

PORTS = {"gateway": 1, "kafka": 2, "kafka-controller": 3, "postgres": 4, "valkey": 5, "s3": 6}
KAFKA = {
    "TUNERY_KAFKA_BOOTSTRAP": "kafka.example.com:9093",
    "TUNERY_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
    "TUNERY_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
    "TUNERY_KAFKA_USERNAME": "operator",
    "TUNERY_KAFKA_PASSWORD": "of the operator",
}
S3 = {
    f"TUNERY_S3_{name}": f"https://own.example.com/{name}"
    for name in ("ENDPOINT", "ACCESS_KEY", "SECRET_KEY", "BUCKET")
}


@pytest.fixture
def folders(tmp_path: Path) -> DataDir:
    """Data directory of a stack that was started before."""
    folders = DataDir(tmp_path)
    load_or_create(folders.secrets)
    ports.assign(folders.ports, lambda _: None, PORTS, lambda _: True)
    return folders


def test_beside_a_stack_a_node_has_the_passwords_of_its_agent(folders: DataDir) -> None:
    keys, known = load_or_create(folders.secrets), NodeAccounts(folders, "a").variables
    assert known["TUNERY_KAFKA_USERNAME"] == known["TUNERY_S3_ACCESS_KEY"] == "node.a"
    assert known["TUNERY_KAFKA_PASSWORD"] == keys.kafka_password("node.a")
    assert known["TUNERY_S3_SECRET_KEY"] == keys.s3_password("node.a")
    assert known["TUNERY_S3_ENDPOINT"] == "http://127.0.0.1:6"
    assert keys.s3_secret_key not in known.values()


def test_servers_of_the_operators_own_get_a_new_password_and_no_account_of_s3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**KAFKA, **S3}.items():
        monkeypatch.setenv(name, value)
    first, second = (NodeAccounts(DataDir(tmp_path), "a").variables for _ in range(2))
    for name in S3:  # the machine of an operator need not know them
        monkeypatch.delenv(name)
    assert NodeAccounts(DataDir(tmp_path), "a").variables.keys() == first.keys()
    assert first["TUNERY_KAFKA_PASSWORD"] != second["TUNERY_KAFKA_PASSWORD"]
    assert {**first, "TUNERY_KAFKA_PASSWORD": ""} == {
        **KAFKA,
        "TUNERY_KAFKA_USERNAME": "node.a",
        "TUNERY_KAFKA_PASSWORD": "",
    }


def test_a_kafka_without_passwords_and_one_that_is_not_there_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**KAFKA, **S3}.items():
        monkeypatch.setenv(name, value)

    async def refuse(*_: object) -> None:
        raise Unavailable("no broker")

    monkeypatch.setattr(preparation, "add_account", refuse)
    with pytest.raises(LocalError, match=r"account of node\.a was not made: no broker"):
        NodeAccounts(DataDir(tmp_path), "a").create()
    for name in KAFKA:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TUNERY_KAFKA_BOOTSTRAP", "kafka.example.com:9092")
    with pytest.raises(LocalError, match="used without"):
        NodeAccounts(DataDir(tmp_path), "a")
