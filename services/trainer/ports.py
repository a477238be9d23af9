"""What the agent needs of its machine: its hardware, and processes."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from schemas.node import DeviceFault
from schemas.training import Device
from schemas.units import Ms
from tunery.ranks.joining import Keeper

# How many processes the kernel has killed here for lack of memory; None: it does not say.
MemoryKills: TypeAlias = Callable[[], int | None]


@dataclass(frozen=True)
class Hardware:
    """What one slot of the machine has.

    memory_bytes: of the device, or of the machine.
    device_names: the driver's names of accelerators; each is one slot at most.
    accelerator: their model; empty: there are none.
    interconnect: between them, as in `NodeDescription`.
    """

    device: Device
    memory_bytes: int
    device_names: tuple[str, ...] = ()
    accelerator: str = ""
    interconnect: str = ""


@dataclass(frozen=True)
class DeviceUse:
    """busy_percent: of the last second or so, in which a kernel ran; memory_bytes: taken."""

    busy_percent: int
    memory_bytes: int


class WorkProcess(Protocol):
    """A process in a group of its own."""

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
        """What it has read so far, from files and devices; it only grows while it lives."""

    def error_tail(self) -> str:
        """The end of its standard error."""


@dataclass(frozen=True)
class Access:
    """What a process needs besides the folder that it works in.

    read: folders that it reads, such as that of a base model
    write: folders that it shares with later processes of this node
    links: those of `write` in which it makes symbolic links; its agent reads nothing there
    scores: socket at which the agent answers its questions; None: it asks none
    serves: whether it listens at sockets in its folder, and converts files in other processes
    ranks: how many such processes share the work; each is told its number and descriptors
    devices: names of accelerators, of which each rank sees one; empty: as the environment says
    elsewhere: keeps what stands for ranks of other nodes; None: all are on this one
    """

    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    scores: Path | None = None
    serves: bool = False
    links: tuple[Path, ...] = ()
    ranks: int = 1
    devices: tuple[str, ...] = ()
    elsewhere: Keeper | None = None


NO_ACCESS: Final = Access()


class ProcessLauncher(Protocol):
    """Starts processes, and finds those that an earlier agent left."""

    async def start(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        access: Access = NO_ACCESS,
    ) -> WorkProcess:
        """Start a process in a folder of its own, or its ranks, which are followed as one.

        Raises OSError when it cannot be started.
        """

    async def sweep(self) -> int:
        """Kill every process that an earlier agent of this node left; how many there were.

        Raises TimeoutError when one does not die.
        """


class ChatCompletions(Protocol):
    """An endpoint of OpenAI's form that the operator names: it gives scores for graders."""

    async def complete(self, body: Mapping[str, Any]) -> Any:
        """The answer to a chat, as JSON. Raises EndpointError of `tunery.runtime.chat_endpoint`."""


class SlotHealth(Protocol):
    """Says what is wrong with the slots of this machine."""

    def faults(self) -> tuple[DeviceFault, ...]:
        """One for each slot that gets no new leases now, by its number. Returns at once."""


class NoticesUnavailable(Exception):
    """Whether the machine is taken away is not known now."""


class NoticeSource(Protocol):
    """Says when a cloud takes this machine away."""

    async def left_ms(self) -> Ms | None:
        """How long the machine has; None: there is no notice. Raises NoticesUnavailable."""

    async def is_at_risk(self) -> bool:
        """Whether the machine may soon be taken away. Raises NoticesUnavailable."""

    async def close(self) -> None:
        """Free connections."""
