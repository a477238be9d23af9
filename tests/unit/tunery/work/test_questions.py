"""Lines between a process that grades and its agent."""

import msgspec
import pytest

from tunery.work.questions import (
    AskScores,
    ScoreQuestion,
    ScoreReply,
    ScoresFailed,
    ScoresGiven,
    decode_questions,
    decode_score_reply,
    encode_line,
)


def test_questions_are_one_line() -> None:
    asked = AskScores((ScoreQuestion(1, ("first\nline", "é")),))
    line = encode_line(asked)
    assert line.count(b"\n") == 1
    assert decode_questions(line) == asked
    with pytest.raises(msgspec.MsgspecError):
        decode_questions(b'{"questions": [{"part": "x"}]}\n')


@pytest.mark.parametrize(
    "reply",
    [
        ScoresGiven((0.5, "model_grader_refusal_error", 3.0)),
        ScoresFailed("platform", "it is gone", "wait"),
    ],
)
def test_replies_are_what_they_were(reply: ScoreReply) -> None:
    assert decode_score_reply(encode_line(reply)) == reply
    with pytest.raises(msgspec.MsgspecError):
        decode_score_reply(b'{"answers": [1]}\n')
