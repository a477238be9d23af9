"""What the notifier needs of the network."""

from collections.abc import Mapping
from typing import Protocol


class Unreachable(Exception):
    """No answer this time: name, connection, TLS, or time limit. Worth another attempt."""


class Outbound(Protocol):
    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        """Send once, follow nothing, answer with the status.

        Raises Unreachable, and `services.notifier.domain.target.Forbidden` for good.
        """

    async def close(self) -> None: ...
