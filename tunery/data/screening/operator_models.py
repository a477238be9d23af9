"""Models that an operator brings: one finds names of people, one rates how toxic a text is.

A model is named by its place, `module:callable`, and is imported in the process that reads rows;
`presidio` stands for the recogniser that comes with the extra `pii`. A place is a part of the key
of a prepared data set: another version of a model needs another name.
"""

import importlib
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

from tunery.data.personal import Span

#: characters of a text that are somebody's name or home: spans of kind `person` or `place`
Recogniser: TypeAlias = Callable[[str], Iterable[Span]]
#: for each text, from 0 to 1, how likely it is toxic
Rater: TypeAlias = Callable[[Sequence[str]], Sequence[float]]

NAMED: Final = {"presidio": "tunery.data.screening.presidio:recognise"}


class ModelUnusable(Exception):
    """A model cannot be used, or answers what no such model may; the message says what to do."""


@cache
def load(place: str) -> Callable[..., Any]:
    """The callable at `module:callable`. Raises ModelUnusable."""
    module, colon, name = NAMED.get(place, place).partition(":")
    if not (module and colon and name):
        raise ModelUnusable(
            f"{place!r} names no model: give `module:callable`, or one of {', '.join(NAMED)}"
        )
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ModelUnusable(
            f"model {place!r} cannot be imported ({error}): install its package for this Python"
        ) from error
    if not callable(found):
        raise ModelUnusable(f"model {place!r} is a {type(found).__name__}: name a callable")
    return found  # type: ignore[no-any-return]  # callable() tells mypy nothing about Any


def rate(place: str, texts: Sequence[str]) -> list[int]:
    """Percent for each text. Raises ModelUnusable."""
    rates = list(load(place)(texts))
    if len(rates) != len(texts) or not all(0 <= one <= 1 for one in rates):
        raise ModelUnusable(
            f"model {place!r} rated {len(texts)} texts with {len(rates)} numbers; "
            "it must give one from 0 to 1 for each"
        )
    return [round(100 * one) for one in rates]


def recognise(place: str, text: str) -> list[Span]:
    """Names in a text. Raises ModelUnusable."""
    spans = list(load(place)(text))
    if not all(
        isinstance(span, Span) and 0 <= span.start < span.end <= len(text) for span in spans
    ):
        raise ModelUnusable(f"model {place!r} must give Spans within the text, it gave others")
    return spans
