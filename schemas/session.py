"""Stream `session` (key: session, owner: scheduler): commands of a tenant's own training loop.

A session is a job whose process takes its commands from here, in the order of their numbers. Their
bodies are in object storage, named by hash. What is answered once is not computed anew for whoever
asks again, and a lost process is restored by the commands after its newest checkpoint.
"""

from typing import Final, Literal, TypeAlias, get_args

from schemas.envelope import Message, Part, Rejected, Repeated, Tick
from schemas.training import BlobFile
from schemas.units import Ms, Tokens

SessionCommandKind: TypeAlias = Literal[
    "forward",
    "forward_backward",
    "optim_step",
    "save_state",
    "load_state",
    "save_sampler",
    "sample",
]
SESSION_COMMAND_KINDS: Final[tuple[str, ...]] = get_args(SessionCommandKind)
# Those that change what is trained: a restored process takes them again. Others are answered once.
CHANGING: Final[frozenset[str]] = frozenset({"forward_backward", "optim_step", "load_state"})
SESSIONS: Final = "sessions"  # kind of the blobs of sessions
AHEAD_MAX: Final = 256  # commands that may come before one whose turn is earlier
QUIET_MS_MAX: Final[Ms] = 600_000  # a session ends after so long without a sign of its client
SessionEnd: TypeAlias = Literal["client", "quiet"]


class SessionTerms(Part):
    """Terms of a job that takes commands of its tenant."""

    client: str  # the client's own session, whose heartbeats are for it
    max_tokens: Tokens  # tokens that its commands may have
    max_ms: Ms  # how long its process may run on its slots


class SessionCommand(Part):
    """One command of a session."""

    seq: int  # its number, from 1; commands without `sampler` are taken in this order
    kind: SessionCommandKind
    body: BlobFile  # its content, as `tunery.work.session` has it
    tokens: Tokens = 0  # tokens that pass through the model
    # the sampler that has numbered it; empty: it is one of the model's own
    sampler: str = ""
    # hash of the path under which what it saves is found; empty: it saves nothing
    saved: str = ""
    # files of the weights that it begins with; empty: those that are trained
    weights: tuple[BlobFile, ...] = ()

    @property
    def name(self) -> str:
        """The name of the command, unique within its session."""
        return name_of(self.sampler, self.seq)


def name_of(sampler: str, seq: int) -> str:
    """Return the name of a command in its session."""
    return f"{sampler}:{seq}" if sampler else str(seq)


# --- commands
class OpenSession(Message):
    """A job with a session was admitted (reaction of job)."""

    terms: SessionTerms


class LeaseSession(Message):
    """Reaction of pool: the session has a lease, and these nodes may answer."""

    attempt: int
    node_ids: tuple[str, ...]


class CloseSession(Message):
    """Reaction of job: the session's job has ended."""


class TakeCommand(Message):
    """The client's loop asks for something."""

    command: SessionCommand


class AnswerCommand(Message):
    """The session's process has done what was asked."""

    attempt: int  # of its job
    name: str  # see `SessionCommand`
    answer: BlobFile  # as `tunery.work.session` has it
    failed: bool = False  # the answer says what was wrong
    saved: tuple[BlobFile, ...] = ()  # files of what was saved


class TouchSession(Message):
    """The client is there still."""


class EndSession(Message):
    """The session is to save its weights and end."""


# --- events
class SessionOpened(Message):
    """Commands are taken."""

    terms: SessionTerms


class SessionLeased(Message):
    """These nodes may answer from now on, and no others."""

    # attempt, node_ids: see `LeaseSession`
    attempt: int
    node_ids: tuple[str, ...]


class CommandTaken(Message):
    """The session's process is to do this."""

    command: SessionCommand


class CommandAnswered(Message):
    """The one answer to a command."""

    # name, answer, failed, saved: see `AnswerCommand`
    name: str
    answer: BlobFile
    failed: bool = False
    saved: tuple[BlobFile, ...] = ()
    path: str = ""  # hash of the path under which `saved` is found


class SessionTouched(Message):
    """A sign of life of the client."""


class SessionEnding(Message):
    """No more commands are taken; the process does what was asked before, and ends."""

    why: SessionEnd


class SessionClosed(Message):
    """End of a session: later answers do not count."""


Command: TypeAlias = (
    OpenSession
    | LeaseSession
    | CloseSession
    | TakeCommand
    | AnswerCommand
    | TouchSession
    | EndSession
    | Tick
)
Event: TypeAlias = (
    SessionOpened
    | SessionLeased
    | CommandTaken
    | CommandAnswered
    | SessionTouched
    | SessionEnding
    | SessionClosed
    | Rejected
    | Repeated
)
