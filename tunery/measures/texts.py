"""How well an answer agrees with its reference: normalised texts, token F1."""

import re
import string
from collections import Counter
from typing import Final

_ARTICLES: Final = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)


def as_label(text: str) -> str:
    """A class as it is compared: in lower case, without punctuation and white space around it."""
    return " ".join(text.casefold().strip(string.punctuation + string.whitespace).split())


def token_f1(text: str, reference: str) -> float:
    """F1 of common words after SQuAD's normalisation (Rajpurkar et al., 2016).

    In lower case, without punctuation and without English articles. Two empty texts agree.
    """
    words, wanted = _squad_words(text), _squad_words(reference)
    if not words or not wanted:
        return float(words == wanted)
    common = sum((Counter(words) & Counter(wanted)).values())
    return 2 * common / (len(words) + len(wanted))


def _squad_words(text: str) -> list[str]:
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()
