"""How alike two texts are, from 0 to 1, by the measures that OpenAI's graders name.

The numbers are those of the libraries that are named; tests hold theirs.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final

CHARACTERS_MAX: Final = 16_384  # of each text; the rest is not compared
BLEU_N: Final = 4
# What sacrebleu's tokenizer "13a" sets apart: punctuation, but not within numbers.
_MARKS: Final = re.compile(r"([\{-\~\[-\` -\&\(-\+\:-\@\/])")
_AFTER: Final = re.compile(r"([^0-9])([\.,])")
_BEFORE: Final = re.compile(r"([\.,])([^0-9])")
_DASH: Final = re.compile(r"([0-9])(-)")
_WORDS: Final = re.compile(r"[^\W_]+")


def fuzzy_match(text: str, reference: str) -> float:
    """Share of characters in order in both: the ratio of RapidFuzz."""
    total = len(text) + len(reference)
    return 2 * common_length(text, reference) / total if total else 1.0


def bleu(text: str, reference: str) -> float:
    """BLEU of one sentence as sacrebleu has it: tokens of "13a", exponential smoothing."""
    words, wanted = _tokens_13a(text), _tokens_13a(reference)
    if not words or not wanted:
        return 0.0
    total, orders, smoothing = 0.0, 0, 1.0
    for n in range(1, BLEU_N + 1):
        grams = _grams(words, n)
        count = sum(grams.values())
        if not count:  # only orders that the text has count
            break
        matches = sum((grams & _grams(wanted, n)).values())
        if not matches:
            if n == 1:
                return 0.0
            smoothing *= 2
        total += math.log(matches / count if matches else 1 / (smoothing * count))
        orders += 1
    brevity = min(1.0, math.exp(1 - len(wanted) / len(words)))
    return brevity * math.exp(total / orders)


def gleu(text: str, reference: str) -> float:
    """Google's BLEU (Wu et al., 2016) as NLTK has it, on words between white space."""
    words, wanted = text.split(), reference.split()
    grams, others = (
        sum((_grams(side, n) for n in range(1, BLEU_N + 1)), Counter[tuple[str, ...]]())
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


def common_length(left: Sequence[Hashable], right: Sequence[Hashable]) -> int:
    """Length of the longest common subsequence, by bit-parallel rows (Hyyrö, 2004)."""
    positions: dict[Hashable, int] = {}
    for index, part in enumerate(left):
        positions[part] = positions.get(part, 0) | 1 << index
    everything = (1 << len(left)) - 1
    row = everything
    for part in right:
        hits = row & positions.get(part, 0)
        row = (row + hits | row - hits) & everything
    return len(left) - row.bit_count()


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


def _tokens_13a(text: str) -> list[str]:
    """Words as sacrebleu's "13a" takes them, which is that of mteval-v13a.pl."""
    line = text.replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for entity, mark in (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">")):
        line = line.replace(entity, mark)
    line = _MARKS.sub(r" \1 ", f" {line} ")
    line = _AFTER.sub(r"\1 \2 ", line)
    line = _BEFORE.sub(r" \1 \2", line)
    return _DASH.sub(r"\1 \2 ", line).split()
