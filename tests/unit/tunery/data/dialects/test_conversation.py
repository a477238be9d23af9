"""Rows without the reasoning of their answers."""

import pytest

from tunery.data.dialects.conversation import Conversation, without_reasoning
from tunery.data.findings.finding import Note

QUESTION = {"role": "user", "content": "<think>what?</think> Why?"}


def answered(content: str, **more: object) -> Conversation:
    return Conversation(
        [QUESTION, {"role": "assistant", "content": content, **more}], [False, True]
    )


@pytest.mark.parametrize(
    "content",
    [
        "<think>\nhm\n</think>\n\nSo.",
        "hm </think>\nSo.",
        "<think>a</think><think>b</think>So.",
        "So.",
    ],
)
def test_bases_f7_reasoning_inside_and_beside_an_answer_goes(content: str) -> None:
    kept = without_reasoning(answered(content, reasoning_content="hm"))
    assert isinstance(kept, Conversation)
    assert kept.messages == [QUESTION, {"role": "assistant", "content": "So."}]
    assert kept.trained == [False, True]


def test_bases_f7_an_answer_that_is_all_reasoning_is_refused() -> None:
    assert without_reasoning(answered("<think>hm</think>\n")) == Note(
        "content_empty", "/messages/1", "it is all reasoning"
    )
    call = {"id": "1", "function": {"name": "f", "arguments": "{}"}}
    kept = without_reasoning(answered("", reasoning_content="hm", tool_calls=[call]))
    assert isinstance(kept, Conversation)
    assert kept.messages[1] == {"role": "assistant", "content": "", "tool_calls": [call]}


def test_bases_f7_answers_that_differ_in_their_reasoning_alone_are_no_pair() -> None:
    chosen = answered("So.", reasoning_content="a").messages
    rejected = answered("So.", reasoning_content="b").messages
    refused = without_reasoning(Conversation(chosen, [False, True], rejected=rejected))
    assert isinstance(refused, Note)
    assert refused.code == "chosen_equals_rejected"


def test_bases_f7_plain_text_stays_and_a_completion_loses_its_reasoning() -> None:
    plain = Conversation([], [], pair=("", "<think>hm</think>So."), plain=True)
    assert without_reasoning(plain) is plain
    pair = without_reasoning(
        Conversation(answered("So.").messages, [False, True], pair=("Q", "<think>hm</think> So."))
    )
    assert isinstance(pair, Conversation)
    assert pair.pair == ("Q", "So.")
