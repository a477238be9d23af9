"""Kafka's settings and ids."""

import uuid
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tunery.local import kafka


@given(st.binary(min_size=16, max_size=16))
def test_a_cluster_id_is_never_taken_for_an_option(octets: bytes) -> None:
    cluster_id = kafka.cluster_id(uuid.UUID(bytes=octets))
    assert len(cluster_id) == 22
    assert not cluster_id.startswith("-")


def test_the_broker_listens_on_this_machine_alone(tmp_path: Path) -> None:
    written = kafka.properties(tmp_path, 19092, 19093, "secret")
    listeners = [line for line in written.splitlines() if "listeners=" in line]
    assert listeners == [
        "listeners=CLIENTS://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093",
        "advertised.listeners=CLIENTS://127.0.0.1:19092",
    ]
    assert "auto.create.topics.enable=false" in written


def test_security_c1_each_listener_asks_for_a_password(tmp_path: Path) -> None:
    written = kafka.properties(tmp_path, 19092, 19093, "secret").splitlines()
    [kinds] = [line for line in written if line.startswith("listener.security.protocol.map=")]
    assert kinds.split("=")[1] == "CLIENTS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT"
    assert "super.users=User:kafka;User:operator" in written
    assert any(line.endswith(".StandardAuthorizer") for line in written)
