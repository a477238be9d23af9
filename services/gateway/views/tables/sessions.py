"""Read models of sessions, their commands, and the weights that these have saved."""

from typing import Final

from schemas.session import SessionCommandKind, SessionEnd
from schemas.training import BlobFile
from schemas.units import Ms, Tokens
from services.gateway.views.table import Table, TableIndex, TableRow


class SessionRow(TableRow):
    """A session; its id is that of its job."""

    tenant: str
    client: str  # the client's own session
    opened_at: Ms
    # max_tokens, max_ms: as they are now
    max_tokens: Tokens
    max_ms: Ms
    kept_ms: Ms  # how long its commands and what it saved stay after its end
    touched_at: Ms | None = None
    why: SessionEnd | None = None  # it is ending
    closed_at: Ms | None = None
    erased_at: Ms | None = None  # bodies, answers and what it has saved are gone


class SessionCommandRow(TableRow):
    """A command; its id is its name in the session."""

    tenant: str
    session_id: str
    taken_at: Ms
    kind: SessionCommandKind
    seq: int
    sampler: str
    tokens: Tokens
    path: str  # hash of the path under which what it saves is found; empty: it saves nothing
    answered_at: Ms | None = None
    answer: BlobFile | None = None
    failed: bool | None = None


class SavedWeightsRow(TableRow):
    """Weights that a command has saved; the id is the hash of their path."""

    tenant: str
    session_id: str
    command: str  # its name
    saved_at: Ms
    files: tuple[BlobFile, ...]


SESSIONS: Final = Table(
    "sessions",
    SessionRow,
    key=("tenant", "id"),
    order="opened_at",
    indexes=(TableIndex(("tenant", "client")),),
)
SESSION_COMMANDS: Final = Table(
    "session_commands",
    SessionCommandRow,
    key=("tenant", "session_id", "id"),
    order="taken_at",
)
SAVED_WEIGHTS: Final = Table(
    "saved_weights", SavedWeightsRow, key=("tenant", "session_id", "id"), order="saved_at"
)
