"""How alike two texts are, from 0 to 1, by the measures that OpenAI's graders name.

sacrebleu and RapidFuzz compute what they are named for. The F1 of n-grams stays here: for texts of
CHARACTERS_MAX rouge-score takes seconds and knows ASCII words only, and NLTK takes 50 MB.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU, CHRF

CHARACTERS_MAX: Final = 16_384  # of each text; the rest is not compared
GLEU_N: Final = 4
_WORDS: Final = re.compile(r"[^\W_]+")


def fuzzy_match(text: str, reference: str) -> float:
    """Share of characters in order in both: the ratio of RapidFuzz."""
    total = len(text) + len(reference)
    return 2 * common_length(text, reference) / total if total else 1.0


def bleu(text: str, reference: str) -> float:
    """BLEU of one sentence by sacrebleu: tokens of "13a", exponential smoothing, orders it has."""
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a, TokenizerRegexp

    try:
        return _share(_scorers()[0].sentence_score(text, [reference]).score)
    finally:  # each keeps 65,536 texts, of whichever tenant: two gigabytes, and after an erasure
        Tokenizer13a.__call__.cache_clear()
        TokenizerRegexp.__call__.cache_clear()


def chrf(text: str, reference: str) -> float:
    """chrF2 of one sentence by sacrebleu, as a share: n-grams of up to six characters."""
    return _share(_scorers()[1].sentence_score(text, [reference]).score)


def gleu(text: str, reference: str) -> float:
    """Google's BLEU (Wu et al., 2016) as NLTK has it, on words between white space."""
    words, wanted = text.split(), reference.split()
    grams, others = (
        sum((_grams(side, n) for n in range(1, GLEU_N + 1)), Counter[tuple[str, ...]]())
        for side in (words, wanted)
    )
    most = max(sum(grams.values()), sum(others.values()))
    return sum((grams & others).values()) / most if most else 0.0


def rouge_n(n: int) -> Callable[[str, str], float]:
    """F1 of common n-grams of words: rouge-score's, with the words of all scripts."""

    def measure(text: str, reference: str) -> float:
        grams, wanted = _grams(_words(text), n), _grams(_words(reference), n)
        return _f1(sum((grams & wanted).values()), sum(grams.values()), sum(wanted.values()))

    return measure


def rouge_l(text: str, reference: str) -> float:
    """F1 of the longest common sequence of words: rouge-score's ROUGE-L."""
    words, wanted = _words(text), _words(reference)
    return _f1(common_length(words, wanted), len(words), len(wanted))


def common_length(left: Sequence[Any], right: Sequence[Any]) -> int:
    """Length of the longest common subsequence."""
    from rapidfuzz.distance import LCSseq

    return LCSseq.similarity(left, right)


MEASURES: Final[Mapping[str, Callable[[str, str], float]]] = {
    "fuzzy_match": fuzzy_match,
    "bleu": bleu,
    "gleu": gleu,
    **{f"rouge_{n}": rouge_n(n) for n in range(1, 6)},
    "rouge_l": rouge_l,
}


def similarity(measure: str, text: str, reference: str) -> float:
    """The measure of the beginnings of two texts."""
    return MEASURES[measure](text[:CHARACTERS_MAX], reference[:CHARACTERS_MAX])


def _grams(parts: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(parts[at : at + n]) for at in range(len(parts) - n + 1))


def _words(text: str) -> list[str]:
    return _WORDS.findall(text.lower())


def _f1(common: int, own: int, wanted: int) -> float:
    return 2 * common / (own + wanted) if common else 0.0


@cache
def _scorers() -> "tuple[BLEU, CHRF]":
    # A tenth of a second: only where they are asked. It wants a folder for temporary files, which
    # leases have and previews do not.
    from sacrebleu.metrics import BLEU, CHRF

    return BLEU(effective_order=True), CHRF()


def _share(percent: float) -> float:
    return min(1.0, percent / 100)  # equal texts have 100 and a rounding error
