"""Settings of Kafka's SASL and TLS: what fits together, and what is said where it does not."""

from pathlib import Path

import pytest

from tunery.platform.kafka_login import KafkaLogin, TokenFile
from tunery.platform.settings import SettingsError, load

SCRAM = {
    "SECURITY_PROTOCOL": "SASL_PLAINTEXT",
    "SASL_MECHANISM": "SCRAM-SHA-512",
    "USERNAME": "gateway",
    "PASSWORD": "pass-word",
}


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KafkaLogin.model_fields:
        monkeypatch.delenv(f"TUNERY_{name.upper()}", raising=False)


def login(monkeypatch: pytest.MonkeyPatch, **values: str) -> KafkaLogin:
    for name, value in values.items():
        monkeypatch.setenv(f"TUNERY_KAFKA_{name}", value)
    return load(KafkaLogin)


def test_without_settings_anybody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert login(monkeypatch).client_options() == {"security_protocol": "PLAINTEXT"}


def test_a_password_is_used_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = login(monkeypatch, **SCRAM)
    assert settings.client_options() == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "gateway",
        "sasl_plain_password": "pass-word",
    }
    assert "pass-word" not in repr(settings)


async def test_a_token_is_read_when_it_is_needed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    protocol = {"SECURITY_PROTOCOL": "SASL_PLAINTEXT", "SASL_MECHANISM": "OAUTHBEARER"}
    options = login(monkeypatch, **protocol, TOKEN_FILE=str(file)).client_options()
    provider = options["sasl_oauth_token_provider"]
    assert isinstance(provider, TokenFile)
    for token in ("first", "second"):
        file.write_text(f"{token}\n")
        assert await provider.token() == token


def test_librdkafka_gets_the_same_login_in_its_own_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert login(monkeypatch, **SCRAM).librdkafka_options() == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "gateway",
        "sasl.password": "pass-word",
    }
    for name in ("USERNAME", "PASSWORD"):
        monkeypatch.delenv(f"TUNERY_KAFKA_{name}")
    file = tmp_path / "token"
    values = {"SASL_MECHANISM": "OAUTHBEARER", "TOKEN_FILE": str(file)}
    options = login(monkeypatch, **values).librdkafka_options()
    for token in ("first", "second"):
        file.write_text(f"{token}\n")
        assert options["oauth_cb"]("")[0] == token


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"USERNAME": "x"}, "TUNERY_KAFKA_USERNAME is set, but .* is PLAINTEXT; .*SASL_SSL"),
        ({"SECURITY_PROTOCOL": "SASL_SSL"}, "TUNERY_KAFKA_SASL_MECHANISM is not set, and SASL_SSL"),
        (SCRAM | {"PASSWORD": ""}, "TUNERY_KAFKA_PASSWORD is not set, and SCRAM-SHA-512 needs it"),
        (
            {"SECURITY_PROTOCOL": "SASL_SSL", "SASL_MECHANISM": "OAUTHBEARER"},
            "TUNERY_KAFKA_TOKEN_FILE is not set, and OAUTHBEARER needs it",
        ),
        (SCRAM | {"CA_FILE": "ca.pem"}, "TUNERY_KAFKA_CA_FILE is set, but .*; .*SSL or SASL_SSL"),
        (
            {"SECURITY_PROTOCOL": "SSL", "CERTIFICATE_FILE": "own.pem"},
            "TUNERY_KAFKA_CERTIFICATE_FILE and TUNERY_KAFKA_KEY_FILE belong together",
        ),
        ({"SECURITY_PROTOCOL": "SSL", "CA_FILE": "absent.pem"}, "cannot be used: .*No such file"),
        ({"SECURITY_PROTOCOL": "TLS"}, "TUNERY_KAFKA_SECURITY_PROTOCOL: Input should be"),
        (SCRAM | {"SASL_MECHANISM": "GSSAPI"}, "TUNERY_KAFKA_SASL_MECHANISM: Input should be"),
    ],
)
def test_security_c1_settings_that_do_not_fit_together_are_named(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, str], problem: str
) -> None:
    with pytest.raises(SettingsError, match=problem):
        login(monkeypatch, **values)
    with pytest.raises(SettingsError) as caught:
        login(monkeypatch, **values)
    assert "pass-word" not in str(caught.value)
