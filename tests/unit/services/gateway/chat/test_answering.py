"""Several answers to one question, and errors for refusals."""

import pytest

from services.gateway.chat.answering import answer, questions, refusal
from services.gateway.web.domain.errors import ApiError
from tests.unit.services.gateway.chat.scripted_engine import QUESTION, ScriptedEngine
from tunery.work.engine import (
    BUSY,
    FAILED,
    MALFORMED,
    STALE_BASE,
    TENANT_BUSY,
    TOO_LONG,
    UNSUPPORTED,
    Question,
    QuestionRefused,
    Sampling,
    TextAdded,
)


async def test_all_answers_come_to_their_end() -> None:
    engine = ScriptedEngine()
    texts = {0: "", 1: "", 2: ""}
    async for index, part in answer(engine, questions(QUESTION, 3)):
        if isinstance(part, TextAdded):
            texts[index] += part.text
    assert texts == {0: "Hello", 1: "Hello", 2: "Hello"}


def test_each_answer_has_its_own_seed_the_same_each_time() -> None:
    seeded = Question(QUESTION.model, QUESTION.messages, Sampling(seed=7))
    assert [asked.sampling.seed for asked in questions(seeded, 3)] == [7, 8, 9]
    assert [asked.sampling.seed for asked in questions(QUESTION, 2)] == [None, None]


async def test_a_refusal_is_raised_and_ends_all() -> None:
    engine = ScriptedEngine([QuestionRefused(TOO_LONG, "too long")])
    with pytest.raises(ApiError) as refused:
        await anext(answer(engine, questions(QUESTION, 2)))
    assert (refused.value.status, refused.value.code) == (400, "context_length_exceeded")


async def test_an_engine_that_is_away_is_503() -> None:
    with pytest.raises(ApiError) as away:
        await anext(answer(ScriptedEngine(away=True), [QUESTION]))
    assert away.value.status == 503


async def test_who_stops_reading_stops_the_engine() -> None:
    engine = ScriptedEngine([TextAdded("on")] * 1_000)
    parts = answer(engine, [QUESTION])
    await anext(parts)
    await parts.aclose()
    assert engine.given_up == 1


@pytest.mark.parametrize(
    ("code", "status", "shown"),
    [
        (TOO_LONG, 400, "context_length_exceeded"),
        (MALFORMED, 400, "invalid_request"),
        (UNSUPPORTED, 400, "model_not_servable"),
        (STALE_BASE, 409, "base_changed"),
        (BUSY, 503, "engine_busy"),
        (FAILED, 503, "engine_failed"),
    ],
)
def test_each_refusal_has_a_status(code: str, status: int, shown: str) -> None:
    error = refusal(QuestionRefused(code, "why"))
    assert (error.status, error.code, error.message) == (status, shown, "why")
    assert ("retry-after" in error.headers) == (status == 503)


def test_a_tenant_with_too_many_questions_gets_a_retry_time() -> None:
    error = refusal(QuestionRefused(TENANT_BUSY, "Rate limit reached"))
    assert (error.status, error.code) == (429, "rate_limit_exceeded")
    assert int(error.headers["retry-after"]) > 0
    assert error.all_headers()["x-should-retry"] == "true"
