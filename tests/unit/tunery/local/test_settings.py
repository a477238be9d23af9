"""Settings: what services get, and servers of the user's own."""

import hashlib
from pathlib import Path

import pytest

from schemas.access import KEEPS_ROWS
from tunery.local import ports, secrets, settings
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir
from tunery.platform.kafka_login import KafkaLogin

PORTS = {"gateway": 1, "kafka": 2, "kafka-controller": 3, "postgres": 4, "valkey": 5, "s3": 6}


def build(tmp_path: Path, environ: dict[str, str]) -> settings.Settings:
    keys = secrets.load_or_create(tmp_path / "secrets.json")
    return settings.build(DataDir(tmp_path), PORTS, keys, environ)


def test_services_get_the_hash_of_the_key_and_never_the_key(tmp_path: Path) -> None:
    configured = build(tmp_path, {})
    environment = configured.environment()
    assert configured.admin_key not in "".join(environment.values())
    assert (
        environment["TUNERY_ADMIN_KEY_SHA256"]
        == hashlib.sha256(configured.admin_key.encode()).hexdigest()
    )
    assert environment["TUNERY_KAFKA_BOOTSTRAP"] == "127.0.0.1:2"
    assert environment["HF_HUB_OFFLINE"] == "1"


def test_server_of_the_user_replaces_the_embedded_one(tmp_path: Path) -> None:
    environ = {"TUNERY_POSTGRES_DSN": "postgresql://db/x", "TUNERY_KAFKA_BOOTSTRAP": "k:9092"}
    configured = build(tmp_path, environ)
    assert settings.replaced(environ) == {"kafka", "postgres"}
    assert configured.environment()["TUNERY_POSTGRES_DSN"] == "postgresql://db/x"
    assert configured.environment()["TUNERY_KAFKA_BOOTSTRAP"] == "k:9092"
    assert configured.environment()["TUNERY_S3_ENDPOINT"] == "http://127.0.0.1:6"


def test_an_external_s3_needs_its_keys() -> None:
    with pytest.raises(LocalError, match="TUNERY_S3_ACCESS_KEY, TUNERY_S3_SECRET_KEY"):
        settings.replaced({"TUNERY_S3_ENDPOINT": "http://s3", "TUNERY_S3_BUCKET": "b"})


def test_a_stack_that_was_started_is_found_again(tmp_path: Path) -> None:
    folders = DataDir(tmp_path)
    secrets.load_or_create(folders.secrets)
    ports.assign(folders.ports, lambda _: None, PORTS, lambda _: True)
    assert settings.of_stack(folders, {}) == build(tmp_path, {})


@pytest.mark.parametrize("left", ["secrets", "ports"])
def test_incomplete_settings_are_no_stack(tmp_path: Path, left: str) -> None:
    folders = DataDir(tmp_path)
    if left == "secrets":
        secrets.load_or_create(folders.secrets)
    else:
        ports.assign(folders.ports, lambda _: None, PORTS, lambda _: True)
    with pytest.raises(LocalError, match="TUNERY_KAFKA_BOOTSTRAP and TUNERY_POSTGRES_DSN"):
        settings.of_stack(folders, {})


def test_security_c1_a_process_gets_its_own_password_alone(tmp_path: Path) -> None:
    configured = build(tmp_path, {})
    gateway, node = (configured.environment(name) for name in ("gateway", "node.a"))
    assert gateway["TUNERY_KAFKA_USERNAME"] == "gateway"
    assert gateway["TUNERY_KAFKA_SASL_MECHANISM"] == "SCRAM-SHA-512"
    passwords = {
        configured.keys.kafka_password(name) for name in ("gateway", "node.a", "operator", "kafka")
    }
    assert len(passwords) == 4
    for environment in (gateway, node):
        known = passwords & set(environment.values())
        assert known == {environment["TUNERY_KAFKA_PASSWORD"]}
        assert configured.keys.kafka_secret not in environment.values()
    assert configured.keys.kafka_secret not in repr(configured)


def test_a_kafka_of_the_users_own_is_asked_as_its_settings_say(tmp_path: Path) -> None:
    environ = {"TUNERY_KAFKA_BOOTSTRAP": "k:9092"}
    login = {f"TUNERY_{name.upper()}" for name in KafkaLogin.model_fields}
    assert not login & build(tmp_path, environ).environment("gateway").keys()
    with pytest.raises(LocalError, match="TUNERY_KAFKA_USERNAME is set, but TUNERY_KAFKA_BOOTSTR"):
        build(tmp_path, {"TUNERY_KAFKA_USERNAME": "gateway"})


def test_wrong_settings_of_kafka_are_named_to_the_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNERY_KAFKA_SECURITY_PROTOCOL", "SASL_SSL")
    with pytest.raises(LocalError, match="TUNERY_KAFKA_SASL_MECHANISM is not set"):
        settings.log_settings(DataDir(tmp_path), {"TUNERY_KAFKA_BOOTSTRAP": "k:9092"})


def test_security_m3_a_process_reaches_its_own_schema_alone(tmp_path: Path) -> None:
    configured = build(tmp_path, {})
    addresses = {
        service: configured.environment(service)["TUNERY_POSTGRES_DSN"] for service in KEEPS_ROWS
    }
    assert len(set(addresses.values())) == len(KEEPS_ROWS)
    assert addresses["notifier"].startswith("postgresql://tunery_notifier:")
    assert configured.environment()["TUNERY_POSTGRES_DSN"] == configured.postgres_dsn
    for principal in ("engine", "exporter", "node.a", "other"):
        assert "TUNERY_POSTGRES_DSN" not in configured.environment(principal)
    for principal in (*KEEPS_ROWS, "node.a"):
        values = "".join(configured.environment(principal).values())
        assert configured.keys.postgres_password not in values


def test_a_postgres_of_the_users_own_has_one_address_for_all_that_keep_rows(tmp_path: Path) -> None:
    configured = build(tmp_path, {"TUNERY_POSTGRES_DSN": "postgresql://db/x"})
    assert configured.environment("notifier")["TUNERY_POSTGRES_DSN"] == "postgresql://db/x"
    assert "TUNERY_POSTGRES_DSN" not in configured.environment("exporter")


def test_security_m3_the_key_store_is_named_to_those_who_open_texts(tmp_path: Path) -> None:
    configured = build(tmp_path, {})
    named = {
        principal: "TUNERY_KEYSTORE_DIR" in configured.environment(principal)
        for principal in ("gateway", "node.a", "operator", "scheduler", "exporter", "engine")
    }
    assert list(named.values()) == [True, False, True, False, False, False]


def test_security_m3_a_process_reaches_objects_as_itself_alone(tmp_path: Path) -> None:
    configured = build(tmp_path, {})
    names = ("gateway", "notifier", "node.a", "node.b")
    logins = {
        name: (environment["TUNERY_S3_ACCESS_KEY"], environment["TUNERY_S3_SECRET_KEY"])
        for name in names
        for environment in [configured.environment(name)]
    }
    assert [access for access, _ in logins.values()] == list(names)
    assert len({secret for _, secret in logins.values()}) == len(names)
    for name in names:
        assert configured.keys.s3_secret_key not in configured.environment(name).values()
    assert configured.environment()["TUNERY_S3_SECRET_KEY"] == configured.keys.s3_secret_key


def test_an_s3_of_the_users_own_is_asked_as_its_variables_say(tmp_path: Path) -> None:
    names = ("ENDPOINT", "ACCESS_KEY", "SECRET_KEY", "BUCKET")
    own = {f"TUNERY_S3_{name}": f"https://own.example.com/{name}" for name in names}
    environment = build(tmp_path, own).environment("notifier")
    assert {name: environment[name] for name in own} == own
