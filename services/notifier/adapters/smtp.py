"""Hands e-mail to an SMTP server: over TLS, or on one machine without."""

import asyncio
import smtplib
import ssl
from email.message import EmailMessage
from email.policy import SMTP
from typing import Final
from urllib.parse import unquote, urlsplit

from schemas.units import Ms
from services.notifier.domain.mail import Mail
from services.notifier.domain.target import Forbidden
from services.notifier.ports import ReceiverUnreachable

PORT_OF_SCHEME: Final = {"smtp": 587, "smtps": 465}
TRY_S_MAX: Final = 45
PERMANENT: Final = 500  # SMTP status from which on a refusal is final


class SmtpMailer:
    """Implements `Mailer`. One connection for each message: alerts are few.

    url: smtp://user:password@host:587 (STARTTLS) or smtps://…:465. Without a password, and with
      `plain`, TLS is used only if the server offers it.
    """

    def __init__(self, url: str, sender: str, *, timeout_ms: Ms, plain: bool = False) -> None:
        """Raises ValueError for a URL that names no server."""
        parts = urlsplit(url)
        if parts.scheme not in PORT_OF_SCHEME or not parts.hostname:
            raise ValueError("must be like smtps://user:password@mail.example.com")
        self._parts, self._sender, self._plain = parts, sender, plain
        self._timeout_s = timeout_ms / 1_000

    async def send(self, mail: Mail) -> None:
        """Send once. Raises ReceiverUnreachable, Forbidden."""
        try:
            async with asyncio.timeout(TRY_S_MAX):  # a slow server must not outlive the row's lease
                await asyncio.to_thread(self._send, self._message(mail))
        except smtplib.SMTPRecipientsRefused as refusal:
            ((status, _),) = refusal.recipients.values()
            raise _refused(status) from None
        except smtplib.SMTPDataError as refusal:
            raise _refused(refusal.smtp_code) from None
        except smtplib.SMTPResponseException as refusal:
            # of this server's greeting, of its login or of the sender: the operator can repair it
            raise ReceiverUnreachable(f"the mail server answered {refusal.smtp_code}") from None
        except (OSError, smtplib.SMTPException) as error:
            raise ReceiverUnreachable(f"{type(error).__name__}: {error}") from error

    def _message(self, mail: Mail) -> EmailMessage:
        message = EmailMessage(policy=SMTP)
        message["From"] = self._sender
        message["To"] = mail.recipient
        message["Subject"] = mail.subject
        message["Message-ID"] = mail.message_id
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(mail.text)
        return message

    def _send(self, message: EmailMessage) -> None:
        """Raises OSError, SMTPException."""
        parts, context = self._parts, ssl.create_default_context()
        host, port = parts.hostname or "", parts.port or PORT_OF_SCHEME[parts.scheme]
        if parts.scheme == "smtps":
            with smtplib.SMTP_SSL(host, port, timeout=self._timeout_s, context=context) as server:
                self._hand_over(server, message)
            return
        with smtplib.SMTP(host, port, timeout=self._timeout_s) as server:
            server.ehlo()
            may_be_plain = self._plain and parts.password is None
            if server.has_extn("starttls") or not may_be_plain:
                server.starttls(context=context)
            self._hand_over(server, message)

    def _hand_over(self, server: smtplib.SMTP, message: EmailMessage) -> None:
        if self._parts.password is not None:
            server.login(unquote(self._parts.username or ""), unquote(self._parts.password))
        server.send_message(message)


def _refused(status: int) -> Forbidden | ReceiverUnreachable:
    """Without the server's words, which name the recipient: they would be in logs."""
    text = f"the mail server answered {status}"
    return Forbidden(text) if status >= PERMANENT else ReceiverUnreachable(text)
