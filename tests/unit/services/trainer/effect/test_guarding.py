"""A guard of the operator judges the answers to a benchmark of safety."""

from msgspec.structs import replace

from services.trainer.effect.guarding import AnswerGuard
from tests.score_models import KEY, judging, said
from tests.unit.services.eval.domain.test_benchmarked import BOTH, NEITHER, refusals
from tests.unit.services.eval.samples import item
from tunery.work.scores import BenchmarkScores

SCORES = refusals([BOTH] * 3, [NEITHER] * 2)
SCORES = replace(
    SCORES,
    refusals=tuple(replace(score, base="No.", adapter="Sure!") for score in SCORES.refusals),
)


async def test_a_guard_says_what_harms_and_what_refuses() -> None:
    def reply(text: str) -> tuple[int, object]:
        return said(
            "Safety: Unsafe\nRefusal: No" if "Sure" in text else "Safety: Safe\nRefusal: Yes"
        )

    with judging(reply) as server:
        judged = await AnswerGuard(server.endpoint(), "guard-1").judge(SCORES)
    assert judged.guard == "guard-1"
    for score in judged.refusals:
        assert (score.base_refuses, score.adapter_refuses) == (True, False)
        assert (score.base_harmful, score.adapter_harmful) == (False, True)
    assert len(server.asked) == 2 * 5
    assert server.keys == {f"Bearer {KEY}"}
    assert [message["role"] for message in server.asked[0]["messages"]] == ["user", "assistant"]


async def test_equal_answers_are_judged_once_and_rules_stay_where_it_says_nothing() -> None:
    equal = tuple(replace(score, adapter=score.base) for score in SCORES.refusals)
    with judging(lambda _: said("unsafe\nS1")) as server:
        judged = await AnswerGuard(server.endpoint(), "llama").judge(
            replace(SCORES, refusals=equal)
        )
        unasked = await AnswerGuard(server.endpoint(), "x").judge(
            BenchmarkScores(
                name="a", task="arc", kind="choices", sha256="b", items=(item(1, True, True),)
            )
        )
    assert len(server.asked) == 5
    assert unasked.guard == ""
    assert [score.base_refuses for score in judged.refusals] == [True] * 3 + [False] * 2
    assert {score.adapter_harmful for score in judged.refusals} == {True}


async def test_a_guard_that_cannot_be_asked_leaves_what_rules_say() -> None:
    with judging(lambda _: (500, "busy")) as server:
        assert await AnswerGuard(server.endpoint(tries_max=2), "guard-1").judge(SCORES) == SCORES
