"""What the supervisor tells: to the terminal, to the state file, to tests."""

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """Of one child."""

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
    """A child came into `phase`; `detail` is for a reader (why it ended, what is tried next)."""

    name: str
    phase: Phase
    detail: str = ""
    pid: int | None = None
    restarts: int = 0
    elapsed_ms: int = 0
    address: str = ""


@dataclass(frozen=True)
class Note:
    """A line worth seeing that belongs to no change of phase."""

    text: str


Event = Changed | Note
