"""E-mail over real SMTP: what arrives, what is tried again, what is refused for good."""

import ssl
from pathlib import Path

import pytest

from services.notifier.adapters.smtp import SmtpMailer
from services.notifier.domain.mail import Mail
from services.notifier.domain.target import Forbidden
from services.notifier.ports import ReceiverUnreachable
from tests.certificates import Authority
from tests.unit.services.notifier.mail_server import OK, mail_server

MAIL = Mail(
    recipient="ops@acme.example",
    subject="[Tunery] acme: 80 % of the budget is used or held",
    text="Look: tunery budget list\n.\n..\n",
    message_id="<del_1@tunery>",
)


def mailer(url: str, *, plain: bool = True) -> SmtpMailer:
    return SmtpMailer(url, "tunery@acme.example", timeout_ms=2_000, plain=plain)


async def test_a_message_arrives_as_it_was_written() -> None:
    async with mail_server() as server:
        await mailer(server.url).send(MAIL)
        (message,) = server.received
    headers = {name: message[name] for name in ("From", "To", "Subject", "Message-ID")}
    assert headers == {
        "From": "tunery@acme.example",
        "To": "ops@acme.example",
        "Subject": MAIL.subject,
        "Message-ID": "<del_1@tunery>",
    }
    assert message.get_content().replace("\r\n", "\n") == MAIL.text


@pytest.mark.parametrize(
    ("recipient", "data", "expected"),
    [
        ("550 no such mailbox: ops@acme.example", OK, Forbidden),
        ("450 try again, ops@acme.example", OK, ReceiverUnreachable),
        (OK, "554 not for ops@acme.example", Forbidden),
        (OK, "451 ops@acme.example is busy", ReceiverUnreachable),
    ],
)
async def test_a_refusal_is_final_from_500_on_and_never_repeats_the_address(
    recipient: str, data: str, expected: type[Exception]
) -> None:
    async with mail_server(recipient, data=data) as server:
        status = (data if recipient == OK else recipient)[:3]
        with pytest.raises(expected, match=f"answered {status}") as raised:
            await mailer(server.url).send(MAIL)
    assert "acme" not in str(raised.value)
    assert raised.value.__suppress_context__  # logs of a traceback do not have it either
    assert server.received == []


async def test_a_server_without_tls_is_not_used_unless_it_is_allowed() -> None:
    async with mail_server() as server:
        with pytest.raises(ReceiverUnreachable, match="STARTTLS"):
            await mailer(server.url, plain=False).send(MAIL)
        with pytest.raises(ReceiverUnreachable, match="STARTTLS"):
            await mailer(server.url.replace("//", "//user:secret@")).send(MAIL)
    assert server.received == []


async def test_over_tls_the_mailer_logs_in_and_checks_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*Authority(tmp_path).issue("mail"))
    async with mail_server(starttls=context) as server:
        url = server.url.replace("//", "//tunery:s%3Acret@")
        with pytest.raises(ReceiverUnreachable, match="CERTIFICATE_VERIFY_FAILED"):
            await mailer(url, plain=False).send(MAIL)
        assert server.logins == []
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        await mailer(url, plain=False).send(MAIL)
        with pytest.raises(ReceiverUnreachable, match="answered 535"):
            await mailer(url.replace("s%3Acret", "wrong"), plain=False).send(MAIL)
    assert set(server.logins) == {b"tunery"}
    assert server.encrypted == [True]


async def test_a_server_that_is_away_is_worth_another_try() -> None:
    async with mail_server() as server:
        url = server.url
    with pytest.raises(ReceiverUnreachable, match="refused"):
        await mailer(url).send(MAIL)


@pytest.mark.parametrize("url", ["", "mail.example.com", "http://mail.example.com", "smtp://"])
def test_a_url_that_names_no_mail_server_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="smtps://"):
        mailer(url)
