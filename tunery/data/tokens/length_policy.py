"""Applies the length policy: a row with more tokens than `max_length` is refused, cut or split."""

from collections.abc import Sequence
from typing import Final, get_args

from schemas.dataset import LengthPolicy
from tunery.data.dialects.detection import Dialect
from tunery.data.findings.finding import Note
from tunery.data.tokens.tokenizer import Encoded

LENGTH_POLICIES: Final[tuple[LengthPolicy, ...]] = get_args(LengthPolicy)


def fit(tokens: Encoded, limit: int | None, policy: LengthPolicy) -> Sequence[Encoded] | Note:
    """Turn a row into sequences of at most `limit` tokens. Returns a `Note` if none can be used.

    `limit` is None for any length. Every returned sequence has at least one label. The sequences of
    a split row together have the labels of the whole row, each once.
    """
    length = len(tokens.ids)
    if limit is None or length <= limit:
        sequences = [tokens]
    elif policy == "reject":
        return Note("row_too_long", detail=f"{length}, max_length is {limit}")
    elif policy == "truncate":
        sequences = [tokens.span(0, limit)]
    else:
        # The first token of a sequence is not a label: each begins with the last of the previous.
        step = max(limit - 1, 1)
        sequences = [tokens.span(at, at + limit) for at in range(0, length - 1, step)]
    trainable = [sequence for sequence in sequences if sequence.trainable]
    if not trainable:
        kept = 0 if policy == "split" else len(sequences[0].ids)
        cut = f"the first {kept:,} of {length:,} tokens" if 0 < kept < length else ""
        return Note("no_trainable_token", detail=cut)
    return trainable


def fit_answers(
    answers: Sequence[Encoded], limit: int | None, policy: LengthPolicy
) -> Sequence[Encoded] | Note:
    """The sequences of a row: of its one conversation as `fit` makes them, or the two of a pair."""
    return (
        fit(answers[0], limit, policy) if len(answers) == 1 else _fit_pair(answers, limit, policy)
    )


def _fit_pair(
    pair: Sequence[Encoded], limit: int | None, policy: LengthPolicy
) -> Sequence[Encoded] | Note:
    """Two answers to one prompt, together of at most `limit` tokens: they stay in one packed row.

    To truncate is to cut each of them to half of the limit.
    """
    together = sum(len(side.ids) for side in pair)
    if limit is not None and together > limit:
        if policy != "truncate":
            detail = f"both answers with their prompt have {together}, max_length is {limit}"
            return Note("row_too_long", detail=detail)
        limit //= 2
    sides: list[Encoded] = []
    for side in pair:
        fitted = fit(side, limit, "truncate")
        if isinstance(fitted, Note):
            return fitted
        sides += fitted
    return sides


def check_policy(policy: LengthPolicy, dialect: Dialect | None) -> Note | None:
    """The finding about a policy that this dialect does not allow: only plain text can be split."""
    if policy != "split" or dialect is None or dialect == "text":
        return None
    return Note("split_not_text", detail=dialect)
