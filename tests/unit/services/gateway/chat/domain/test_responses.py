"""Usage of several answers."""

from services.gateway.chat.domain.responses import Answer, AnswerIdentity, completion
from tunery.work.engine import AnswerEnded

IDENTITY = AnswerIdentity("chatcmpl-1", 1_795_000_000, "tiny", "fp_1")


TOKEN = {"id": 7, "token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}


def test_probabilities_are_sent_without_the_engines_own_numbers() -> None:
    answers = [Answer(["a"], [TOKEN], AnswerEnded("stop", 5, 1))]
    (choice,) = completion(IDENTITY, answers)["choices"]
    shown = choice["logprobs"]["content"]
    assert shown == [{name: value for name, value in TOKEN.items() if name != "id"}]


def test_the_question_is_counted_once() -> None:
    answers = [
        Answer(["a", "b"], [], AnswerEnded("stop", 5, 2, 2)),
        Answer(["c"], [], AnswerEnded("length", 5, 1)),
    ]
    shown = completion(IDENTITY, answers)
    assert shown["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 3,
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 2},
    }
    assert [choice["message"]["content"] for choice in shown["choices"]] == ["ab", "c"]
    assert [choice["finish_reason"] for choice in shown["choices"]] == ["stop", "length"]
