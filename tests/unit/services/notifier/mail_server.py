"""A mail server: real SMTP on 127.0.0.1 that keeps what it got."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, Final

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

OK: Final = "250 ok"
LOGIN: Final = (b"tunery", b"s:cret")


@dataclass
class MailServer:
    """Answers each recipient, and each message, with its answers in turn, the last one for ever."""

    answers: list[str] = field(default_factory=lambda: [OK])
    data_answers: list[str] = field(default_factory=lambda: [OK])
    received: list[EmailMessage] = field(default_factory=list)
    logins: list[bytes] = field(default_factory=list)  # who has logged in
    encrypted: list[bool] = field(default_factory=list)  # for each message whether it came over TLS
    port: int = 0

    @property
    def url(self) -> str:
        return f"smtp://127.0.0.1:{self.port}"

    async def handle_RCPT(  # noqa: N802  # the name that aiosmtpd calls
        self, server: Any, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        answer = _next(self.answers)
        if answer == OK:
            envelope.rcpt_tos.append(address)
        return answer

    async def handle_DATA(  # noqa: N802  # the name that aiosmtpd calls
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        answer = _next(self.data_answers)
        if answer == OK:
            content = envelope.content
            assert isinstance(content, bytes)
            self.received.append(message_from_bytes(content, policy=policy.SMTP))
            self.encrypted.append(session.ssl is not None)
        return answer

    def authenticate(
        self, server: Any, session: Any, envelope: Any, mechanism: str, login: Any
    ) -> AuthResult:
        assert isinstance(login, LoginPassword)
        self.logins.append(login.login)
        return AuthResult(success=(login.login, login.password) == LOGIN, handled=False)


def _next(answers: list[str]) -> str:
    return answers[0] if len(answers) == 1 else answers.pop(0)


@asynccontextmanager
async def mail_server(
    *answers: str, data: str = OK, starttls: ssl.SSLContext | None = None, port: int = 0
) -> AsyncIterator[MailServer]:
    """answers: to recipients. data: the answer to a message. starttls: demands TLS, and a login.
    port: 0: a free one.
    """
    server = MailServer(list(answers) or [OK], [data])

    def protocol() -> SMTP:
        return SMTP(
            server,
            hostname="127.0.0.1",
            tls_context=starttls,
            require_starttls=starttls is not None,
            auth_required=starttls is not None,
            authenticator=server.authenticate,
        )

    listening = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", port)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
