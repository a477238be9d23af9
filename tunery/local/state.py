"""The state file: what the supervisor last told, for `status`, `down` and other programs."""

import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from tunery.local import ports, processes, secrets
from tunery.local.events import Changed, Event, Note, Phase
from tunery.local.paths import DataDir
from tunery.local.ports import HOST

NOTES_MAX: Final = 20


class Mood(StrEnum):
    """Of the whole stack."""

    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True)
class ChildState:
    """`since_ms` is Unix time."""

    name: str
    phase: Phase
    pid: int | None
    restarts: int
    address: str
    detail: str
    since_ms: int


@dataclass
class StackState:
    """Everything `tunery status` shows. Holds no secrets."""

    mood: Mood = Mood.STOPPED
    supervisor: processes.ProcessRecord | None = None
    started_ms: int = 0
    ready_after_ms: int | None = None
    failure: str = ""
    children: dict[str, ChildState] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def apply(self, event: Event, now_ms: int) -> None:
        match event:
            case Note(text=text):
                self.notes = [*self.notes, text][-NOTES_MAX:]
            case Changed():
                self.children[event.name] = ChildState(
                    name=event.name,
                    phase=event.phase,
                    pid=event.pid,
                    restarts=event.restarts,
                    address=event.address,
                    detail=event.detail,
                    since_ms=now_ms,
                )

    def is_alive(self) -> bool:
        return self.supervisor is not None and self.supervisor.is_alive()


class StateFile:
    """Keeps a StackState on disk. Written by rename at each change, so it is never half."""

    def __init__(self, folders: DataDir) -> None:
        self._path = path(folders)
        self.state = StackState(
            mood=Mood.STARTING,
            supervisor=processes.record("supervisor", processes.own_pid()),
            started_ms=now_ms(),
        )
        self.write()

    def hear(self, event: Event) -> None:
        self.state.apply(event, now_ms())
        self.write()

    def enter(self, mood: Mood, failure: str = "") -> None:
        self.state.mood = mood
        self.state.failure = failure
        if mood is Mood.READY:
            self.state.ready_after_ms = now_ms() - self.state.started_ms
        self.write()

    def write(self) -> None:
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(asdict(self.state), indent=1), encoding="utf-8")
        part.replace(self._path)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def path(folders: DataDir) -> Path:
    return folders.run / "state.json"


def read(folders: DataDir) -> StackState:
    """A stopped StackState where there is no file, or one that cannot be read."""
    try:
        found = json.loads(path(folders).read_text(encoding="utf-8"))
        return _decode(found)
    except (FileNotFoundError, PermissionError, ValueError, KeyError, TypeError):
        return StackState()


def _decode(found: dict[str, Any]) -> StackState:
    above = found["supervisor"]
    return StackState(
        mood=Mood(found["mood"]),
        supervisor=None if above is None else processes.ProcessRecord(**above),
        started_ms=found["started_ms"],
        ready_after_ms=found["ready_after_ms"],
        failure=found["failure"],
        children={
            name: ChildState(**{**child, "phase": Phase(child["phase"])})
            for name, child in found["children"].items()
        },
        notes=found["notes"],
    )


@dataclass(frozen=True)
class Connection:
    """How a client reaches a gateway."""

    api_url: str
    api_key: str


def connection(folders: DataDir, environ: dict[str, str]) -> Connection | None:
    """`TUNERY_API_URL` and `TUNERY_API_KEY` where both are set, else the stack of `folders`.

    None when there is neither.
    """
    url, key = environ.get("TUNERY_API_URL", ""), environ.get("TUNERY_API_KEY", "")
    if url and key:
        return Connection(url.rstrip("/"), key)
    with contextlib.suppress(FileNotFoundError, KeyError):
        port = ports.read(folders.ports)["gateway"]
        return Connection(f"http://{HOST}:{port}", key or secrets.load(folders.secrets).admin_key)
    return None


def in_order(state: StackState, names: Sequence[str]) -> list[ChildState]:
    """Children in the order of `names`, others after them by name."""
    known = [state.children[name] for name in names if name in state.children]
    rest = sorted(set(state.children) - set(names))
    return [*known, *(state.children[name] for name in rest)]
