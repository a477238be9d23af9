"""How well an answer agrees with its reference: normalised texts, token F1, chrF."""

import re
import string
from collections import Counter
from typing import Final

CHARACTERS_MAX: Final = 16_384  # of each text; the rest is not compared
CHRF_ORDER: Final = 6
CHRF_BETA: Final = 2
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


def chrf(text: str, reference: str) -> float:
    """chrF2 of one sentence as sacrebleu has it, as a share: n-grams of up to six characters.

    Popović (2015), "chrF: character n-gram F-score for automatic MT evaluation". White space does
    not count.
    """
    characters, wanted = "".join(text.split()), "".join(reference.split())
    precision = recall = 0.0
    orders = 0
    for n in range(1, CHRF_ORDER + 1):
        grams, others = _grams(characters, n), _grams(wanted, n)
        if not grams or not others:
            continue
        matches = sum((grams & others).values())
        precision += matches / sum(grams.values())
        recall += matches / sum(others.values())
        orders += 1
    if not precision or not recall:
        return 0.0
    precision, recall = precision / orders, recall / orders
    factor = CHRF_BETA**2
    return (1 + factor) * precision * recall / (factor * precision + recall)


def _squad_words(text: str) -> list[str]:
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def _grams(text: str, n: int) -> Counter[str]:
    return Counter(text[at : at + n] for at in range(len(text) - n + 1))
