"""E-mail over real SMTP: what arrives, what is tried again, what is refused for good."""

import pytest

from services.notifier.adapters.smtp import SmtpMailer
from services.notifier.domain.mail import Mail
from services.notifier.domain.target import Forbidden
from services.notifier.ports import ReceiverUnreachable
from tests.unit.services.notifier.mail_server import mail_server

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
    assert "tunery budget list" in message.get_content()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("550 no such mailbox", Forbidden), ("450 try again", ReceiverUnreachable)],
)
async def test_a_refusal_is_final_from_500_on(answer: str, expected: type[Exception]) -> None:
    async with mail_server(answer) as server:
        with pytest.raises(expected, match=answer[:3]):
            await mailer(server.url).send(MAIL)
    assert server.received == []


async def test_a_server_without_tls_is_not_used_unless_it_is_allowed() -> None:
    async with mail_server() as server:
        with pytest.raises(ReceiverUnreachable, match="STARTTLS"):
            await mailer(server.url, plain=False).send(MAIL)
        with pytest.raises(ReceiverUnreachable, match="STARTTLS"):
            await mailer(server.url.replace("//", "//user:secret@")).send(MAIL)
    assert server.received == []


async def test_a_server_that_is_away_is_worth_another_try() -> None:
    async with mail_server() as server:
        url = server.url
    with pytest.raises(ReceiverUnreachable, match="refused"):
        await mailer(url).send(MAIL)


@pytest.mark.parametrize("url", ["", "mail.example.com", "http://mail.example.com", "smtp://"])
def test_a_url_that_names_no_mail_server_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="smtps://"):
        mailer(url)
