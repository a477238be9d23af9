"""The state file: what the supervisor reported last, for other commands and programs."""

import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from tunery.local import ports, processes, secrets
from tunery.local.events import Changed, Event, Notice, Phase
from tunery.local.paths import DataDir
from tunery.local.ports import HOST

NOTES_MAX: Final = 20


class StackPhase(StrEnum):
    """The phase of a whole stack."""

    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class ChildState(Changed):
    """One child as last reported."""

    since_ms: int  # Unix time at which it entered its phase


@dataclass
class StackState:
    """Everything that `tunery status` shows. It holds no secrets."""

    phase: StackPhase = StackPhase.STOPPED
    supervisor: processes.ProcessRecord | None = None
    started_ms: int = 0
    ready_after_ms: int | None = None
    failure: str = ""
    children: dict[str, ChildState] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def apply(self, event: Event, now_ms: int) -> None:
        """Change the state by an event that happened at `now_ms` (Unix time)."""
        match event:
            case Notice(text=text):
                self.notes = [*self.notes, text][-NOTES_MAX:]
            case Changed():
                self.children[event.name] = ChildState(**asdict(event), since_ms=now_ms)

    def is_alive(self) -> bool:
        return self.supervisor is not None and self.supervisor.is_alive()


class StateFile:
    """Keeps a StackState on disk. Each change replaces the file, so that it is always complete."""

    def __init__(self, folders: DataDir) -> None:
        self._path = path(folders)
        self.state = StackState(
            phase=StackPhase.STARTING,
            supervisor=processes.record("supervisor", processes.own_pid()),
            started_ms=now_ms(),
        )
        self.write()

    def record(self, event: Event) -> None:
        """Apply an event and write the file."""
        self.state.apply(event, now_ms())
        self.write()

    def enter(self, phase: StackPhase, failure: str = "") -> None:
        self.state.phase = phase
        self.state.failure = failure
        if phase is StackPhase.READY:
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
    """Read the state file; a stopped StackState when it is missing or cannot be read."""
    try:
        return _decode(json.loads(path(folders).read_text(encoding="utf-8")))
    except (FileNotFoundError, PermissionError, ValueError, KeyError, TypeError):
        return StackState()


def _decode(content: dict[str, Any]) -> StackState:
    supervisor = content["supervisor"]
    return StackState(
        phase=StackPhase(content["phase"]),
        supervisor=None if supervisor is None else processes.ProcessRecord(**supervisor),
        started_ms=content["started_ms"],
        ready_after_ms=content["ready_after_ms"],
        failure=content["failure"],
        children={
            name: ChildState(**{**child, "phase": Phase(child["phase"])})
            for name, child in content["children"].items()
        },
        notes=content["notes"],
    )


@dataclass(frozen=True)
class ApiAddress:
    """URL of a gateway (without /v1) and a key for it."""

    api_url: str
    api_key: str


def connection(folders: DataDir, environ: dict[str, str]) -> ApiAddress | None:
    """`TUNERY_API_URL` and `TUNERY_API_KEY` where both are set, else the stack of `folders`.

    None when there is neither.
    """
    url, key = environ.get("TUNERY_API_URL", ""), environ.get("TUNERY_API_KEY", "")
    if url and key:
        return ApiAddress(url.rstrip("/"), key)
    with contextlib.suppress(FileNotFoundError, KeyError):
        port = ports.read(folders.ports)["gateway"]
        return ApiAddress(f"http://{HOST}:{port}", key or secrets.load(folders.secrets).admin_key)
    return None


def in_order(state: StackState, names: Sequence[str]) -> list[ChildState]:
    """The children in the order of `names`; others follow, sorted by name."""
    known = [state.children[name] for name in names if name in state.children]
    rest = sorted(set(state.children) - set(names))
    return [*known, *(state.children[name] for name in rest)]
