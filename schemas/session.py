"""Stream `session` (key: session, owner: scheduler): commands of a tenant's own training loop.

A session is a job whose process takes its commands from here, in the order of their numbers. Their
bodies are in object storage, named by hash. What is answered once is not computed anew for whoever
asks again, and a lost process is restored by the commands after its newest checkpoint.
"""

from typing import Final, Literal, TypeAlias, get_args

from schemas.envelope import Message, Part, Rejected, Repeated, Tick
from schemas.training import BlobFile
from schemas.units import DAY_MS, Ms, Tokens

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
KEPT_MS: Final[Ms] = 30 * DAY_MS  # what was asked and saved stays so long after the end
QUIET_MS_MAX: Final[Ms] = 600_000  # a session ends after so long without a sign of its client
SessionEnd: TypeAlias = Literal["client", "quiet"]


class SessionTokens(Part):
    """Tokens of a session by kind: its fields are all kinds that there are."""

    train_tokens: Tokens  # of passes with gradients
    prefill_tokens: Tokens  # of passes without gradients, and of prompts
    sample_tokens: Tokens  # that were sampled


TOKEN_KINDS: Final = SessionTokens.__struct_fields__


class SessionTerms(Part):
    """Terms of a job that takes commands of its tenant."""

    client: str  # the client's own session, whose heartbeats are for it
    max_tokens: Tokens  # tokens that its commands may have
    max_ms: Ms  # how long its process may run on its slots
    kept_ms: Ms = KEPT_MS  # how long bodies, answers and what it saved stay after its end


class SavedIn(Part):
    """Where a version was saved: its lineage is the journal of that session."""

    session_id: str
    command: str  # name of the command that saved it, the last one of its lineage


class SessionCommand(Part):
    """One command of a session."""

    seq: int  # its number, from 1; commands without `sampler` are taken in this order
    kind: SessionCommandKind
    body: BlobFile  # its content, as `tunery.work.session` has it
    tokens: Tokens = 0  # tokens that pass through the model, the most that it may sample included
    prompt_tokens: Tokens = 0  # those of them that it samples after
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

    @property
    def trained(self) -> Tokens:
        """Tokens of a pass with gradients."""
        return self.tokens if self.kind == "forward_backward" else 0

    @property
    def prefilled(self) -> Tokens:
        """Tokens of a pass without gradients, or of the prompt."""
        return self.tokens if self.kind == "forward" else self.prompt_tokens


def session_folder(tenant: str, session_id: str) -> str:
    """Return the folder of a session's bodies, answers and what it has saved."""
    return f"t/{tenant}/{SESSIONS}/{session_id}/"


def name_of(sampler: str, seq: int) -> str:
    """Return the name of a command in its session."""
    return f"{sampler}:{seq}" if sampler else str(seq)


# --- commands
class OpenSession(Message):
    """A job with a session was admitted (reaction of job)."""

    terms: SessionTerms
    price_version: str = ""  # the job's price book; empty: not recorded


class LeaseSession(Message):
    """Reaction of pool: the session has a lease, and these nodes may answer."""

    attempt: int
    node_ids: tuple[str, ...]


class SetSessionTerms(Message):
    """Reaction of job: the session may use more."""

    terms: SessionTerms


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
    sampled: Tokens = 0  # tokens that were sampled


class TouchSession(Message):
    """The client is there still."""


class EndSession(Message):
    """The session is to save its weights and end."""


# --- events
class SessionOpened(Message):
    """Commands are taken."""

    # terms, price_version: see `OpenSession`
    terms: SessionTerms
    price_version: str = ""


class SessionTermsSet(Message):
    """These terms are in force from now on."""

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

    # name, answer, failed, saved, sampled: see `AnswerCommand`
    name: str
    answer: BlobFile
    failed: bool = False
    saved: tuple[BlobFile, ...] = ()
    sampled: Tokens = 0
    path: str = ""  # hash of the path under which `saved` is found
    # trained, prefilled, sampled: its tokens by kind, see `SessionTokens`
    trained: Tokens = 0
    prefilled: Tokens = 0
    price_version: str = ""  # see `OpenSession`
    # how many commands have saved something, this one included, and the bytes of all that; 0: it
    # has saved nothing
    saves: int = 0
    saved_bytes: int = 0

    @property
    def tokens(self) -> SessionTokens:
        """Its tokens by kind."""
        return SessionTokens(
            train_tokens=self.trained,
            prefill_tokens=self.prefilled,
            sample_tokens=self.sampled,
        )


class SessionTouched(Message):
    """A sign of life of the client."""


class SessionEnding(Message):
    """No more commands are taken; the process does what was asked before, and ends.

    Repeated while the job has not ended: where it waits for a higher cap, nobody raises that now.
    """

    why: SessionEnd


class SessionClosed(Message):
    """End of a session: later answers do not count."""


class SessionErased(Message):
    """End of the time for which it was kept: bodies, answers and what it has saved are erased."""

    saves: int = 0  # see `CommandAnswered`


Command: TypeAlias = (
    OpenSession
    | LeaseSession
    | SetSessionTerms
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
    | SessionTermsSet
    | CommandTaken
    | CommandAnswered
    | SessionTouched
    | SessionEnding
    | SessionClosed
    | SessionErased
    | Rejected
    | Repeated
)
