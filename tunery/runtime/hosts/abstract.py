"""Port of what a process runs: hosts, each of which works until its process ends."""

from typing import Protocol


class HostStopped(Exception):
    """Raised by a host that must not run again in this process; the message says what to do."""


class Host(Protocol):
    """Something that runs as long as its process. `run` is called again after it raised."""

    @property
    def name(self) -> str:
        """Its name in log lines and metrics."""

    async def run(self) -> None:
        """Work until cancelled.

        What it raises is logged, and it is run again after a pause; but `HostStopped`, and a
        `Divergence` or another `PartitionStopped`, end it for good: a person has to look.
        """

    async def ready(self) -> None:
        """Return when the host serves, in this run or an earlier one."""
