"""Events of the supervisor: for the terminal, the state file and tests."""

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """The phase of a child."""

    WAITING = "waiting"
    PREPARING = "preparing"
    STARTING = "starting"
    READY = "ready"
    PAUSED = "paused"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True)
class Changed:
    """A child entered a phase."""

    name: str
    phase: Phase
    detail: str = ""  # why it ended and what is tried next, for a person
    pid: int | None = None
    restarts: int = 0
    elapsed_ms: int = 0
    address: str = ""


@dataclass(frozen=True)
class Notice:
    """A line for a person that belongs to no change of phase."""

    text: str


Event = Changed | Notice
