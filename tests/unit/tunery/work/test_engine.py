"""Questions and replies on the wire."""

import msgspec
import pytest

from tunery.work.engine import (
    BUSY,
    AnswerEnded,
    EngineModel,
    Question,
    QuestionRefused,
    Reply,
    Sampling,
    TextAdded,
    decode_question,
    decode_reply,
    encode_line,
)

MODEL = EngineModel("tiny", "/bases/tiny", "ab" * 32, 512)


@pytest.mark.parametrize(
    "reply", [TextAdded("a\nb"), AnswerEnded("stop", 3, 2), QuestionRefused(BUSY, "later")]
)
def test_a_reply_is_one_line_and_comes_back(reply: Reply) -> None:
    line = encode_line(reply)
    assert line.count(b"\n") == 1
    assert decode_reply(line) == reply


def test_a_question_comes_back() -> None:
    question = Question(MODEL, ({"role": "user", "content": "é"},), Sampling(seed=7, stop=("x",)))
    assert decode_question(encode_line(question)) == question


def test_anything_else_is_refused() -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_question(b'{"model": 1}\n')
