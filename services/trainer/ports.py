"""What the agent needs of its machine."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from schemas.training import Device


@dataclass(frozen=True)
class Hardware:
    device: Device
    memory_bytes: int


class Child(Protocol):
    """A process in a group of its own."""

    @property
    def pid(self) -> int: ...

    def lines(self) -> AsyncIterator[bytes]:
        """Lines of its standard output, until it closes it. Lines above the limit are cut."""

    def signal(self, number: int) -> None:
        """Signal the whole group; a group that is gone is no error."""

    async def wait(self) -> int:
        """Exit status, negative for a signal; afterwards nothing of the group is left."""

    def tail(self) -> str:
        """End of its standard error, for people."""


class Machine(Protocol):
    async def start(
        self, argv: Sequence[str], environment: Mapping[str, str], folder: Path
    ) -> Child: ...

    async def sweep(self) -> int:
        """Kill whatever an earlier agent of this node left running; how many processes it was."""
