from pathlib import Path

import pytest
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from tunery.platform.bus.broker_settings import SESSION_MS, SETTINGS
from tunery.platform.settings import RuntimeSettings, SettingsError, load

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
    assert settings.kafka_replication is None


def test_review2_p1_the_default_session_is_one_that_any_kafka_takes(
    environment: pytest.MonkeyPatch,
) -> None:
    assert load(RuntimeSettings).session_timeout_ms == SESSION_MS
    [least] = [row.default for row in SETTINGS if row.name == "group.min.session.timeout.ms"]
    assert int(least) <= SESSION_MS
    environment.setenv("TUNERY_SESSION_TIMEOUT_MS", "45000")
    assert load(RuntimeSettings).session_timeout_ms == 45_000


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


def test_review2_p3_secrets_are_passwords_and_keys_and_no_names(
    environment: pytest.MonkeyPatch,
) -> None:
    environment.setenv("TUNERY_VALKEY_URL", "redis://:p%40ss-1@127.0.0.1:6379")
    settings = load(RuntimeSettings)
    assert sorted(settings.secrets()) == ["p@ss-1", "pass-word", "secret-key"]
    assert not any(secret in repr(settings) for secret in settings.secrets())


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TUNERY_S3_SECRET_KEY", "gateway"),
        ("TUNERY_KAFKA_PASSWORD", "Scheduler"),
        ("TUNERY_POSTGRES_DSN", "postgresql://tunery:billing@127.0.0.1/tunery"),
        ("TUNERY_VALKEY_URL", "redis://:registry@127.0.0.1"),
    ],
)
def test_first_hour2_u2_a_secret_that_is_a_plain_word_is_refused(
    environment: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    environment.setenv("TUNERY_KAFKA_SECURITY_PROTOCOL", "SASL_PLAINTEXT")
    environment.setenv("TUNERY_KAFKA_SASL_MECHANISM", "SCRAM-SHA-512")
    environment.setenv("TUNERY_KAFKA_USERNAME", "gateway")
    environment.setenv("TUNERY_KAFKA_PASSWORD", "pass-word-2")
    environment.setenv(variable, value)
    with pytest.raises(SettingsError, match=f"{variable} is a plain word; use a random text") as no:
        load(RuntimeSettings)
    assert value not in str(no.value)


def test_settings_of_services_are_named_by_their_own_prefix() -> None:
    class NodeSettings(BaseSettings):
        model_config = SettingsConfigDict(env_prefix="TUNERY_NODE_")
        made_up: int = Field()

    with pytest.raises(SettingsError, match="TUNERY_NODE_MADE_UP is not set"):
        load(NodeSettings)
