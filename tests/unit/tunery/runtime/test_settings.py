from pathlib import Path

import pytest
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from tunery.runtime.settings import RuntimeSettings, SettingsError, load

ENVIRONMENT = {
    "TUNERY_KAFKA_BOOTSTRAP": "127.0.0.1:9092",
    "TUNERY_POSTGRES_DSN": "postgresql://tunery:pass-word@127.0.0.1/tunery",
    "TUNERY_S3_ENDPOINT": "http://127.0.0.1:7070",
    "TUNERY_S3_ACCESS_KEY": "access-key",
    "TUNERY_S3_SECRET_KEY": "secret-key",
    "TUNERY_DATA_DIR": "/somewhere",
}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in RuntimeSettings.model_fields:
        monkeypatch.delenv(f"TUNERY_{name.upper()}", raising=False)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_given_settings_are_used_and_others_have_defaults(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("TUNERY_LOG_LEVEL", "debug")
    settings = load(RuntimeSettings)
    assert settings.kafka_bootstrap == "127.0.0.1:9092"
    assert (settings.s3_bucket, settings.valkey_url, settings.log_level) == (
        "tunery",
        None,
        "DEBUG",
    )
    assert settings.keys == Path("/somewhere/keystore")
    assert settings.signing == Path("/somewhere/signing")
    assert settings.flush_each


def test_three_replicas_need_no_fsync_of_each_record(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("TUNERY_KAFKA_REPLICATION", "3")
    assert not load(RuntimeSettings).flush_each


def test_every_missing_variable_is_named_with_the_fix(environment: pytest.MonkeyPatch) -> None:
    environment.delenv("TUNERY_KAFKA_BOOTSTRAP")
    environment.delenv("TUNERY_S3_SECRET_KEY")
    environment.setenv("TUNERY_SESSION_TIMEOUT_MS", "soon")
    with pytest.raises(SettingsError) as caught:
        load(RuntimeSettings)
    first, second, third = sorted(str(caught.value).splitlines())
    assert (
        first == "TUNERY_KAFKA_BOOTSTRAP is not set; set it, or start the service with `tunery up`"
    )
    assert second.startswith("TUNERY_S3_SECRET_KEY is not set")
    assert third.startswith("TUNERY_SESSION_TIMEOUT_MS: Input should be a valid integer")
    assert "soon" not in third


def test_secrets_are_not_shown(environment: pytest.MonkeyPatch) -> None:
    settings = load(RuntimeSettings)
    assert settings.secrets() == (ENVIRONMENT["TUNERY_POSTGRES_DSN"], "access-key", "secret-key")
    assert not any(secret in repr(settings) for secret in settings.secrets())


def test_settings_of_services_are_named_by_their_own_prefix() -> None:
    class NodeSettings(BaseSettings):
        model_config = SettingsConfigDict(env_prefix="TUNERY_NODE_")
        made_up: int = Field()

    with pytest.raises(SettingsError, match="TUNERY_NODE_MADE_UP is not set"):
        load(NodeSettings)
