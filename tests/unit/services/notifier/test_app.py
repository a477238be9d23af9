"""E-mail is off until a mail server is configured."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from services.notifier.app import mail_route
from services.notifier.settings import NotifierSettings
from tunery.platform.settings import SettingsError


def test_without_a_mail_server_no_e_mail_is_sent() -> None:
    assert mail_route(NotifierSettings()) is None


def test_domains_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNERY_NOTIFIER_SMTP_URL", "smtps://user:secret@mail.example.com")
    monkeypatch.setenv("TUNERY_NOTIFIER_SMTP_DOMAINS", "Acme.example, globex.example,")
    settings = NotifierSettings()
    route = mail_route(settings)
    assert route is not None
    assert route.domains == {"acme.example", "globex.example"}
    assert "secret" not in repr(settings)


def test_a_wrong_url_is_named_by_its_variable_without_its_password() -> None:
    settings = NotifierSettings(smtp_url=SecretStr("http://user:secret@mail.example.com"))
    with pytest.raises(SettingsError, match="TUNERY_NOTIFIER_SMTP_URL must be like") as raised:
        mail_route(settings)
    assert "secret" not in str(raised.value)


def test_the_address_may_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "smtp"
    with pytest.raises(SettingsError, match="TUNERY_NOTIFIER_SMTP_URL_FILE cannot be read"):
        mail_route(NotifierSettings(smtp_url_file=file))
    file.write_text("smtps://user:secret@mail.example.com\n")
    assert mail_route(NotifierSettings(smtp_url_file=file)) is not None
