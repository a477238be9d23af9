"""`eval.measures` of a job: names of measures, patterns, and graders in OpenAI's form."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tunery.graders.grader import NAME_MAX, Grader, GraderRefused, ScoreModel, parse, parts_of

MEASURES_MAX: Final = 8
PATTERN_MAX: Final = 500  # characters
NAMES: Final[Mapping[str, str]] = {
    "exact_match": "1 where the answer is the reference, without white space around it, else 0",
    "accuracy": "the same in any case and without punctuation around it: for classes",
    "token_f1": "F1 of common words, as SQuAD's",
    "bleu": "BLEU of each answer, as sacrebleu's, as a share",
    "chrf": "chrF2 of each answer, as sacrebleu's, as a share",
    "rouge_1": "F1 of common words",
    "rouge_2": "F1 of common pairs of words",
    "rouge_l": "F1 of the longest common sequence of words",
    "json_valid": "1 where the answer is JSON and nothing else, else 0",
}
REGEX: Final = "regex"
JUDGE: Final = "judge"  # no score of one answer: a model of the operator compares both
OBJECTS: Final = (REGEX, "string_check", "text_similarity", "multi")


@dataclass(frozen=True)
class Pattern:
    """1 where a part of the answer matches the pattern (RE2), else 0."""

    pattern: str


@dataclass(frozen=True)
class Measure:
    """Rule that scores an answer."""

    kind: str  # its name, or the type of its declaration; it reveals nothing of the tenant's
    # declared rule; None: the measure is built in under its name
    rule: Pattern | Grader | None = None


def parse_measures(declarations: Any, param: str = "eval.measures") -> tuple[Measure, ...]:
    """Read the measures of a job. Raises `GraderRefused` with the first problem."""
    if not isinstance(declarations, list) or not 1 <= len(declarations) <= MEASURES_MAX:
        raise GraderRefused(param, f"must be a list of 1 to {MEASURES_MAX} measures")
    return tuple(
        _measure(declaration, f"{param}.{number}")
        for number, declaration in enumerate(declarations)
    )


def matches(pattern: str, text: str) -> bool:
    """Return whether a part of the text matches. Raises ValueError for an invalid pattern."""
    import pyarrow as pa  # a tenth of a second, and 50 MB: only where there is a pattern
    import pyarrow.compute as pc

    return bool(pc.match_substring_regex(pa.array([text]), pattern=pattern)[0].as_py())


def _measure(declaration: Any, param: str) -> Measure:
    if isinstance(declaration, str):
        if declaration not in (*NAMES, JUDGE):
            known = ", ".join((*NAMES, JUDGE))
            text = f"must be one of {known}, or an object of type {', '.join(OBJECTS)}"
            raise GraderRefused(param, text)
        return Measure(declaration)
    if isinstance(declaration, dict) and declaration.get("type") == REGEX:
        return Measure(REGEX, _pattern(declaration, param))
    grader = parse(declaration, param)
    if any(isinstance(part, ScoreModel) for part in parts_of(grader)):
        raise GraderRefused(param, 'a model that scores is no measure; name "judge"')
    return Measure(str(declaration["type"]), grader)


def _pattern(fields: Mapping[str, Any], param: str) -> Pattern:
    unknown = next((name for name in fields if name not in ("type", "name", "pattern")), None)
    if unknown is not None:
        raise GraderRefused(f"{param}.{str(unknown)[:NAME_MAX]}", "is not a field of it")
    pattern, where = fields.get("pattern"), f"{param}.pattern"
    if not isinstance(pattern, str) or not 1 <= len(pattern) <= PATTERN_MAX:
        raise GraderRefused(where, f"must be a pattern of 1 to {PATTERN_MAX} characters")
    try:
        matches(pattern, "")
    except ValueError as error:  # pyarrow.ArrowInvalid is one
        text = f"is no pattern of RE2, which has no look-around and no back-references: {error}"
        raise GraderRefused(where, text) from error
    return Pattern(pattern)
