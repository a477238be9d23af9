"""Ports to the agent's machine: its hardware, and processes."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from schemas.envelope import Message
from schemas.node import DeviceFault
from schemas.telemetry import LogLine, Progress, Step
from schemas.training import Device
from schemas.units import Ms
from tunery.ranks.launching import RankLayout

# How many processes the kernel has killed here for lack of memory; None: it does not say.
MemoryKills: TypeAlias = Callable[[], int | None]
Telemetry: TypeAlias = Step | LogLine | Progress


@dataclass(frozen=True)
class Hardware:
    """Hardware of the machine, as its slots see it."""

    device: Device
    memory_bytes: int  # memory of one device; without accelerators, of the machine
    # the driver's names of accelerators; each is one slot at most
    device_names: tuple[str, ...] = ()
    accelerator: str = ""  # model of the accelerators; empty: there are none
    interconnect: str = ""  # between accelerators, as in `NodeDescription`


@dataclass(frozen=True)
class DeviceUse:
    """Use of an accelerator."""

    busy_percent: int  # share of the last second or so in which a kernel ran
    memory_bytes: int  # memory in use


class WorkProcess(Protocol):
    """A process in its own group."""

    @property
    def pid(self) -> int:
        """Its process id, and that of the group."""

    def lines(self) -> AsyncIterator[bytes]:
        """Lines of its standard output, until it closes it. Too long lines are left out."""

    def signal(self, number: int) -> None:
        """Signal the whole group; a group that is gone is no error."""

    async def wait(self) -> int:
        """Exit status, negative for a signal; afterwards no process of the group is left."""

    def read_bytes(self) -> int:
        """Return the bytes read so far, from files and devices. Never falls while it lives."""

    def error_tail(self) -> str:
        """The end of its standard error."""


@dataclass(frozen=True)
class Access:
    """Resources that a process needs besides its working folder."""

    read: tuple[Path, ...] = ()  # folders that it reads, such as that of a base model
    write: tuple[Path, ...] = ()  # folders that it shares with later processes of this node
    # socket at which the agent answers its questions; None: it asks none
    scores: Path | None = None
    # whether it listens at sockets in its folder, and converts files in other processes
    serves: bool = False
    # folders of `write` in which it makes symbolic links; its agent reads nothing there
    links: tuple[Path, ...] = ()
    # layout of the processes that share the work; None: there is one
    ranks: RankLayout | None = None
    job: str = ""  # job and tenant of the work; empty: no later process continues it

    @property
    def processes(self) -> int:
        """Number of processes started on this node."""
        return 1 if self.ranks is None else len(self.ranks.here)

    @property
    def takes_orders(self) -> bool:
        """True for one process whose standard input is free for an order."""
        return self.ranks is None and self.scores is None

    def fits(self, other: "Access") -> bool:
        """Return whether a process that was started with `other` can take this work by an order."""
        return (
            self.takes_orders and {*self.read} <= {*other.read} and {*self.write} <= {*other.write}
        )


NO_ACCESS: Final = Access()


class OrphanSweeper(Protocol):
    """Finds what an earlier agent left."""

    async def sweep(self) -> int:
        """End everything that an earlier agent of this node left; how much there was.

        Raises TimeoutError when something does not end.
        """


class ProcessLauncher(OrphanSweeper, Protocol):
    """Starts processes, and finds those that an earlier agent left."""

    async def start(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        access: Access = NO_ACCESS,
    ) -> WorkProcess:
        """Start a process in its own folder, or its ranks, which are followed as one.

        Raises OSError when it cannot be started.
        """


class Reporting(Protocol):
    """Says what happens to an attempt."""

    async def fact(self, body: Message, tenant: str = "") -> None:
        """Return when the command is in the log, however long that takes."""

    async def telemetry(self, record: Telemetry) -> None:
        """Offer a record about a job; it may get lost."""


class ChatCompletions(Protocol):
    """An endpoint of OpenAI's form that the operator names: it gives scores for graders."""

    async def complete(self, body: Mapping[str, Any]) -> Any:
        """The answer to a chat, as JSON. Raises EndpointError (`platform.chat_endpoint`)."""


class SlotHealth(Protocol):
    """Says what is wrong with the slots of this machine."""

    def faults(self) -> tuple[DeviceFault, ...]:
        """Return a fault for each slot that gets no new leases now, by its number, at once."""


class NoticesUnavailable(Exception):
    """Raised when the source of interruption notices cannot be read."""


class NoticeSource(Protocol):
    """Says when a cloud takes this machine away."""

    async def left_ms(self) -> Ms | None:
        """Return the time until the machine is taken away; None: no notice.

        Raises NoticesUnavailable.
        """

    async def is_at_risk(self) -> bool:
        """Return whether the machine may soon be taken away. Raises NoticesUnavailable."""

    async def close(self) -> None:
        """Free connections."""
