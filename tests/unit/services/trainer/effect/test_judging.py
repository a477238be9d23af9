"""A judge is asked in both orders, once it agreed with the operator's labels."""

import json
from collections.abc import Callable

import pytest

from services.trainer.effect.judging import PairJudge
from tests.score_models import Reply, judging, said
from tests.unit.services.eval.samples import measured
from tunery.gate.pairwise import tally
from tunery.graders.pair_questions import PairsRefused

PAIRS = "\n".join(
    json.dumps({"prompt": f"{n}?", "a": "good", "b": "bad", "better": "a"}) for n in range(30)
).encode()
ROWS = [measured(number, 0.0, 1.0) for number in range(12)]


def prefers(word: str) -> Callable[[str], Reply]:
    def choose(text: str) -> Reply:
        asked = json.loads(text)
        better = "A" if asked["answer_a"] in ("good", word) else "B"
        return said(json.dumps({"better": better}))

    return choose


async def test_a_judge_that_agrees_is_asked_in_both_orders_and_qualified_once() -> None:
    with judging(prefers("the first")) as server:
        judge = PairJudge(server.endpoint(), "judge-1", PAIRS)
        first = await judge.compare(ROWS)
        second = await judge.compare(ROWS)
    assert first == second
    assert first.problem == ""
    counts = tally(first.rows)
    assert (counts.pairs, counts.a, counts.b, counts.ties) == (12, 0, 12, 0)
    assert len(server.asked) == 2 * 30 + 2 * 2 * 12
    assert json.loads(first.rows[0].said[0]) == {"better": "B"}


@pytest.mark.parametrize("words", ['{"better": "A"}', "no idea", '{"better": "tie"}'])
async def test_a_judge_that_goes_by_order_or_says_nothing_is_not_asked_about_rows(
    words: str,
) -> None:
    with judging(lambda _: said(words)) as server:
        judgement = await PairJudge(server.endpoint(), "judge-1", PAIRS).compare(ROWS)
    assert (judgement.problem, judgement.rows) == ("judge_unqualified", ())
    assert len(server.asked) == 2 * 30, "nothing of a tenant's goes out"


@pytest.mark.parametrize("reply", [(500, "busy"), (401, "no"), (200, {"choices": []})])
async def test_an_endpoint_that_fails_ends_in_a_judgement_that_says_so(reply: Reply) -> None:
    with judging(lambda _: reply) as server:
        judgement = await PairJudge(server.endpoint(tries_max=2), "judge-1", PAIRS).compare(ROWS)
    assert judgement.problem == "judge_unavailable"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "it has 0 pairs; give 20 to 200"),
        (PAIRS.replace(b'"better": "a"', b'"better": "c"'), "line 1: better must be one of"),
        (PAIRS + b"\n{", "line 31 is no JSON"),
        (PAIRS + b"\n[" * 100, "it has 130 pairs|line 31 is no JSON"),
        (PAIRS + b'\n{"prompt": "x"}', "line 31 has other fields"),
    ],
)
def test_a_wrong_file_is_refused_with_line_and_fix(content: bytes, problem: str) -> None:
    with judging(lambda _: said("")) as server, pytest.raises(PairsRefused, match=problem):
        PairJudge(server.endpoint(), "judge-1", content)
