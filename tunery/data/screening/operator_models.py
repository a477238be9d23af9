"""Loads models that an operator provides: one recognises names, one rates toxicity.

A model is named "module:callable" and imported in the process that reads rows. `presidio` is short
for the recogniser of the extra "pii". The name is part of the key of a prepared dataset, so another
version of a model needs another name.

A recogniser takes a text and returns a `Span` for each name of a person or place. A toxicity model
takes a sequence of texts and returns a number from 0 to 1 for each.
"""

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

from tunery.data.personal import Span

NAMED: Final = {"presidio": "tunery.data.screening.presidio:recognise"}


class ModelUnusable(Exception):
    """Raised when a model cannot be loaded or returns invalid results.

    The message says what to do.
    """


@cache
def load(name: str) -> Callable[..., Any]:
    """Import the model `module:callable`.

    Raises `ModelUnusable` when there is no such module or callable.
    """
    module, colon, attribute = NAMED.get(name, name).partition(":")
    if not (module and colon and attribute):
        raise ModelUnusable(
            f"{name!r} is not the name of a model: use `module:callable`, or one of "
            f"{', '.join(NAMED)}"
        )
    try:
        model = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ModelUnusable(
            f"model {name!r} cannot be imported ({error}): install its package for this Python"
        ) from error
    if not callable(model):
        raise ModelUnusable(f"model {name!r} is a {type(model).__name__}: name a callable")
    return model  # type: ignore[no-any-return]  # callable() does not narrow Any


def rate(name: str, texts: Sequence[str]) -> list[int]:
    """Rate the toxicity of each text in percent.

    Raises `ModelUnusable` when the model cannot be loaded or returns invalid ratings.
    """
    ratings = list(load(name)(texts))
    if len(ratings) != len(texts) or not all(0 <= rating <= 1 for rating in ratings):
        raise ModelUnusable(
            f"model {name!r} rated {len(texts)} texts with {len(ratings)} numbers; "
            "it must return one number from 0 to 1 for each text"
        )
    return [round(100 * rating) for rating in ratings]


def recognise(name: str, text: str) -> list[Span]:
    """Recognise the names in a text.

    Raises `ModelUnusable` when the model cannot be loaded or returns invalid spans.
    """
    spans = list(load(name)(text))
    if not all(
        isinstance(span, Span) and 0 <= span.start < span.end <= len(text) for span in spans
    ):
        raise ModelUnusable(f"model {name!r} must return `Span`s within the text")
    return spans
