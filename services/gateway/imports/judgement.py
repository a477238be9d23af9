"""Questions to a judge about old and new answers, as chats of a batch, and its verdict. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from msgspec.structs import replace

from schemas.gate import GatePolicy
from services.gateway.wording import verdict_words
from tunery.comparison.models import HeldOutQuestion, JudgedMove
from tunery.gate.judged import judge_result, judged_reason
from tunery.gate.pairwise import TIE
from tunery.graders.pair_questions import (
    INSTRUCTION,
    LabelledPair,
    judged_pair,
    pair_request,
)
from tunery.work.scores import JudgedPair, Judgement

LABELLED: Final = "labelled"
HASH_CHARACTERS: Final = 32
VERDICTS: Final[Mapping[str, str]] = {
    "pass": "better",
    "block": "worse",
    "inconclusive": "no difference shown",
}
OWN_ANSWERS: Final = "a model does not judge its own answers: name another one"


def judged_move(judgement: Judgement) -> JudgedMove:
    """Return the verdict of a judgement whose first answers are the old model's."""
    result = judge_result(judgement, GatePolicy())
    words = verdict_words(judged_reason(result)).replace("the base model's", "the old model's")
    return JudgedMove(
        model=result.model,
        verdict="unused" if result.unused else VERDICTS[result.verdict],
        reasons=[words],
        wins=result.wins,
        losses=result.losses,
        ties=result.ties,
    )


def labelled_questions(judge: str, pairs: Iterable[LabelledPair]) -> dict[str, dict[str, Any]]:
    """Return bodies of chats about labelled pairs, both orders of each, by `custom_id`."""
    bodies: dict[str, dict[str, Any]] = {}
    for pair in pairs:
        content = "\0".join((pair.prompt, pair.a, pair.b)).encode()
        name = f"{LABELLED}:{sha256(content).hexdigest()[:HASH_CHARACTERS]}:{pair.better}"
        bodies |= _both_orders(judge, name, pair.prompt, pair.a, pair.b)
    return bodies


def move_questions(
    judge: str, name: str, question: HeldOutQuestion, old: str, new: str
) -> dict[str, dict[str, Any]]:
    """Return bodies of chats about both answers to a question; none where they are equal.

    name: of the question to the new model, as `row_name`
    """
    return {} if old == new else _both_orders(judge, name, question.text, old, new)


def _both_orders(judge: str, name: str, prompt: str, a: str, b: str) -> dict[str, dict[str, Any]]:
    orders = (a, b), (b, a)
    return {
        f"{name}:{order}": pair_request(judge, prompt, *answers)
        for order, answers in enumerate(orders)
    }


def judge_move(
    judge: str, asked: Sequence[tuple[str, str, str]], said: Mapping[str, str]
) -> JudgedMove:
    """Judge a move by what a judge said.

    asked: name of the question to the new model, the old answer, the new one
    said: the judge's words by `custom_id`
    """
    rows = [_row(number, *each, said) for number, each in enumerate(asked, 1)]
    judged = tuple(row for row in rows if row is not None)
    if len(judged) < len(rows):
        text = f"it has compared {len(judged)} of {len(rows)} pairs of answers: ask it again"
        return JudgedMove(judge, "unused", [text])
    judgement = Judgement(
        model=judge,
        instruction=INSTRUCTION,
        labels_sha256="",
        labelled=tuple(_labelled(said)),
        rows=judged,
    )
    return judged_move(judgement)


def _row(number: int, name: str, old: str, new: str, said: Mapping[str, str]) -> JudgedPair | None:
    if old == new:
        return JudgedPair(number=number, choices=(TIE, TIE))
    return _pair(number, name, said)


def _labelled(said: Mapping[str, str]) -> Iterator[JudgedPair]:
    names = sorted({name.rpartition(":")[0] for name in said if name.startswith(f"{LABELLED}:")})
    for number, name in enumerate(names, 1):
        pair = _pair(number, name, said, label=name.rpartition(":")[2])
        if pair is not None:
            yield pair


def _pair(number: int, name: str, said: Mapping[str, str], label: str = "") -> JudgedPair | None:
    """Return what was said in both orders; None: it was not."""
    first, second = said.get(f"{name}:0"), said.get(f"{name}:1")
    if first is None or second is None:
        return None
    return replace(judged_pair(number, first, second), label=label)
