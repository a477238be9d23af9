"""Questions to a scoring model, and scores from its answers."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tunery.graders.test_grader import SCORE
from tunery.graders.grader import ScoreMessage, ScoreModel, parse
from tunery.graders.grading import ENDPOINT_ERROR, PARSE_ERROR, REFUSAL_ERROR, ScoreUnavailable
from tunery.graders.model_scores import request_body, score_of


def said(content: Any, refusal: str | None = None) -> Any:
    return {"choices": [{"message": {"content": content, "refusal": refusal}}]}


def test_the_question_has_the_messages_the_range_and_the_form_of_the_answer() -> None:
    part = parse({**SCORE, "sampling_params": {"temperature": 0, "seed": 7}})
    assert isinstance(part, ScoreModel)
    body = request_body(part, (ScoreMessage("user", "Rate: Paris"),))
    assert body["model"] == part.model
    assert body["messages"][1:] == [{"role": "user", "content": "Rate: Paris"}]
    assert "a number from 0 to 5" in body["messages"][0]["content"]
    assert (body["temperature"], body["seed"]) == (0, 7)
    assert "top_p" not in body
    schema = body["response_format"]["json_schema"]["schema"]
    assert schema["required"] == ["result"]


@pytest.mark.parametrize(
    ("content", "score"),
    [
        ('{"result": 0.25}', 0.25),
        ('{"result": 3, "why": "good"}', 3.0),
        ("4", 4.0),
        (" -1.5 ", -1.5),
    ],
)
def test_the_number_of_an_answer_is_its_score(content: str, score: float) -> None:
    assert score_of(said(content)) == score


@pytest.mark.parametrize(
    ("answer", "name", "problem"),
    [
        ({}, ENDPOINT_ERROR, "is no chat completion"),
        ([], ENDPOINT_ERROR, "is no chat completion"),
        ({"choices": []}, ENDPOINT_ERROR, "is no chat completion"),
        (said(None, "I will not"), REFUSAL_ERROR, "the model refused: 'I will not'"),
        (said(None), PARSE_ERROR, "gave no number: None"),
        (said("good"), PARSE_ERROR, "gave no number: 'good'"),
        (said('{"result": "4"}'), PARSE_ERROR, "gave no number"),
        (said('{"score": 4}'), PARSE_ERROR, "gave no number"),
        (said("true"), PARSE_ERROR, "gave no number"),
        (said("NaN"), PARSE_ERROR, "gave no number"),
        (said("1e999"), PARSE_ERROR, "gave no number"),
        (said("x" * 500), PARSE_ERROR, "x…'"),
    ],
)
def test_an_answer_without_a_number_is_named(answer: Any, name: str, problem: str) -> None:
    with pytest.raises(ScoreUnavailable) as caught:
        score_of(answer)
    assert caught.value.name == name
    assert problem in str(caught.value)
    assert len(str(caught.value)) < 200


@given(
    answer=st.recursive(
        st.none() | st.text() | st.floats(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)
    )
)
def test_whatever_comes_back_is_a_number_or_a_named_error(answer: Any) -> None:
    for body in (answer, said(answer)):
        with suppress(ScoreUnavailable):
            assert isinstance(score_of(body), float)
