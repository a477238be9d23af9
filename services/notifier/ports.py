"""What the notifier needs of the network."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from schemas.units import Ms


class Unreachable(Exception):
    """No answer this time: name, connection, TLS, or time limit. Worth another attempt."""


@dataclass(frozen=True)
class Answer:
    """`retry_after_ms`: how long the receiver asked to be left alone."""

    status: int
    retry_after_ms: Ms | None = None


class Outbound(Protocol):
    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Send once, follow nothing.

        Raises Unreachable, and `services.notifier.domain.target.Forbidden` for good.
        """

    async def close(self) -> None: ...
