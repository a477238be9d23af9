"""Tokens of sessions on invoices: what was done in the time that is billed; they have no price."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from schemas.session import TOKEN_KINDS, SessionTokens

KIND_WORDS: Final = dict(zip(TOKEN_KINDS, ("trained", "read", "sampled"), strict=True))


class SessionUse(Struct, frozen=True, kw_only=True):
    """Tokens of a session in a month, of commands that were answered in it."""

    session_id: str
    price_version: str  # the price book of the session's job
    tokens: SessionTokens


def tokens_in(record: Mapping[str, Any]) -> SessionTokens:
    """Return the tokens by kind that are among the columns of a record."""
    return SessionTokens(**{kind: record[kind] for kind in TOKEN_KINDS})


def sum_tokens(parts: Iterable[SessionTokens]) -> SessionTokens:
    """Add up tokens by kind."""
    counts: Sequence[SessionTokens] = tuple(parts)
    return SessionTokens(
        **{kind: sum(getattr(part, kind) for part in counts) for kind in TOKEN_KINDS}
    )


def session_words(tokens: SessionTokens) -> str:
    """`tokens: 12,345 trained, 20 read, 7 sampled`."""
    words = (f"{getattr(tokens, kind):,} {word}" for kind, word in KIND_WORDS.items())
    return f"tokens: {', '.join(words)}"
