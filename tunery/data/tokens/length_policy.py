"""What becomes of a row that has more tokens than `max_length`: refused, cut, or split."""

from collections.abc import Sequence
from typing import Final, get_args

from schemas.dataset import LengthPolicy
from tunery.data.dialects.detection import Dialect
from tunery.data.findings.finding import Note
from tunery.data.tokens.tokenizer import Encoded

LENGTH_POLICIES: Final[tuple[LengthPolicy, ...]] = get_args(LengthPolicy)


def fit(tokens: Encoded, limit: int | None, policy: LengthPolicy) -> Sequence[Encoded] | Note:
    """The row as sequences of at most `limit` tokens (None: any), or why there is none.

    Every sequence has a label. A split row has the labels it would have whole, each once.
    """
    length = len(tokens.ids)
    if limit is None or length <= limit:
        found = [tokens]
    elif policy == "reject":
        return Note("row_too_long", detail=f"{length}, max_length is {limit}")
    elif policy == "truncate":
        found = [tokens.span(0, limit)]
    else:
        # the first token of a sequence is no label, so each begins with the last of the one before
        step = max(limit - 1, 1)
        found = [tokens.span(at, at + limit) for at in range(0, length - 1, step)]
    learnt = [each for each in found if each.trainable]
    if not learnt:
        kept = 0 if policy == "split" else len(found[0].ids)
        cut = f"the first {kept:,} of {length:,} tokens" if 0 < kept < length else ""
        return Note("no_trainable_token", detail=cut)
    return learnt


def misused(policy: LengthPolicy, dialect: Dialect | None) -> Note | None:
    """Why rows of this dialect cannot be treated like this: only a text goes on in mid-sentence."""
    if policy != "split" or dialect is None or dialect == "text":
        return None
    return Note("split_not_text", detail=dialect)
