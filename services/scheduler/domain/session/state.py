"""The state of `session`: which commands were taken, and which are answered."""

from typing import Final, TypeAlias

from immutables import Map
from msgspec import Struct

from schemas.envelope import Sha256
from schemas.session import SessionEnd, SessionTerms
from schemas.units import Ms, Tokens


class KnownCommand(Struct, frozen=True, kw_only=True):
    """A command that was taken, as the state keeps it."""

    sha256: Sha256  # hash of its body
    saved: str = ""  # hash of the path under which what it saves is found
    # trained, prefilled: see `CommandAnswered`
    trained: Tokens = 0
    prefilled: Tokens = 0
    answered: bool = False


class Session(Struct, frozen=True, kw_only=True):
    """A session that is not forgotten."""

    tenant: str
    terms: SessionTerms
    touched_at: Ms  # time of the client's last sign of life, or of the last `SessionEnding`
    price_version: str = ""  # see `OpenSession`
    tokens: Tokens = 0  # of all its commands
    waiting: int = 0  # commands that are not answered
    next_seq: int = 1  # the first number that has not come
    commands: Map[str, KnownCommand] = Map()  # by name
    # attempt, node_ids: of the newest lease
    attempt: int = 0
    node_ids: tuple[str, ...] = ()
    ending: SessionEnd | None = None  # why no more commands are taken
    # saves, saved_bytes: see `CommandAnswered`
    saves: int = 0
    saved_bytes: int = 0
    closed_at: Ms | None = None  # it has ended, and what it has stored is kept for a while


Sessions: TypeAlias = Map[str, Session]
INITIAL: Final[Sessions] = Map()
