"""A mail server: real SMTP on 127.0.0.1 that keeps what it got."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_string, policy
from email.message import EmailMessage

OK = "250 ok"


@dataclass
class MailServer:
    """Answers each recipient with `answers` in turn, the last one for ever."""

    answers: list[str] = field(default_factory=lambda: [OK])
    received: list[EmailMessage] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"smtp://127.0.0.1:{self.port}"

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 ready\r\n")
        while line := (await reader.readline()).decode().strip():
            match line.split()[0].upper():
                case "RCPT":
                    answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
                case "DATA":
                    writer.write(b"354 go on\r\n")
                    raw = (await reader.readuntil(b"\r\n.\r\n"))[:-3].decode()
                    self.received.append(message_from_string(raw, policy=policy.SMTP))
                    answer = OK
                case "QUIT":
                    answer = "221 bye"
                case _:
                    answer = OK
            writer.write(f"{answer}\r\n".encode())
        writer.close()


@asynccontextmanager
async def mail_server(*answers: str) -> AsyncIterator[MailServer]:
    server = MailServer(list(answers) or [OK])
    listening = await asyncio.start_server(server.talk, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
