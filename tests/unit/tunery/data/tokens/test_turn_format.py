"""Beginnings and ends of turns, in texts that templates could write."""

import re

import pytest

from tunery.data.dialects.conversation import Conversation
from tunery.data.tokens.message_marks import MarkedText
from tunery.data.tokens.turn_format import TurnFormat, learn_ending, learn_header

SPECIAL = re.compile(r"<[a-z]+>")
ROW = Conversation(
    [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}], [False, True]
)


def located(text: str, turns: TurnFormat, plain: list[tuple[int, int]] | None = None) -> str | None:
    """The turn of the answer `A` to the question `Q`; None when it is not located."""
    spans = {0: (text.index("Q"), text.index("Q") + 1), 1: (text.index("A"), text.index("A") + 1)}
    span = turns.locate(MarkedText(text, spans, plain or []), ROW).get(1)
    return None if span is None else text[slice(*span)]


@pytest.mark.parametrize(
    ("question", "prompted", "header"),
    [
        ("<u>Q<e>", "<u>Q<e><a>", "<a>"),
        ("<u>Q<e>\n", "<u>Q<e>\n<s>model\n<think>\n", "<s>model\n<think>\n"),
        ("<u>Q<end>\n<eos>", "<u>Q<end>\n<eas>", "<eas>"),  # both go on with "<e"
        ("<u>Q<e>", "<u>Q<e>", ""),
    ],
)
def test_a_header_is_what_the_generation_prompt_adds(
    question: str, prompted: str, header: str
) -> None:
    assert learn_header(SPECIAL, question, prompted) == header


@pytest.mark.parametrize(
    ("first", "last", "ending"),
    [
        ("<e>\n<u>", "<e>\n", "<e>"),
        ("<r><e><s><u>", "<r><e>", "<r><e>"),  # two tokens end a turn: both are learnt
        ("<end><s>", "<return>", ""),
        ("\n", "\n", ""),
    ],
)
def test_an_ending_is_what_follows_every_answer(first: str, last: str, ending: str) -> None:
    assert learn_ending(SPECIAL, first, last) == ending


def test_a_turn_begins_after_its_header_and_ends_with_its_ending() -> None:
    turns = TurnFormat(SPECIAL, header="<s>model\n", header_min=9, ending="<r><e>")
    assert located("<u>Q<e><s>model\nA<r><e>\n<eos>", turns) == "A<r><e>"
    assert located("<u>Q<e><s>model\n<b></b>A<r><e>", turns) == "<b></b>A<r><e>"


def test_the_first_of_several_headers_begins_the_turn() -> None:
    turns = TurnFormat(SPECIAL, header="<s>model", header_min=8)
    text = "<u>Q<e><s>model<c>thought<e><s>model<c>A<ret>"
    assert located(text, turns) == "<c>thought<e><s>model<c>A<ret>"


def test_a_template_may_write_less_than_its_header() -> None:
    turns = TurnFormat(SPECIAL, header="<s>model\n<think>\n", header_min=9, ending="<e>")
    assert located("<u>Q<e><s>model\nA<e>", turns) == "A<e>"
    assert located("<u>Q<e><s>model\n<think></think>A<e>", turns) == "</think>A<e>"
    assert located("<u>Q<e><s>other\nA<e>", turns) == "A<e>", "too little of it is no header"


def test_a_turn_without_its_ending_ends_with_a_stop_or_before_the_next_header() -> None:
    turns = TurnFormat(SPECIAL, frozenset(["<stop>"]), header="<s>model", ending="<e>")
    row = Conversation([*ROW.messages, {"role": "tool", "content": "T"}], [False, True, False])

    def end(text: str) -> str | None:
        spans = {i: (text.index(c), text.index(c) + 1) for i, c in enumerate("QAT")}
        span = turns.locate(MarkedText(text, spans), row).get(1)
        return None if span is None else text[span[0] : span[1]]

    assert end("Q<s>modelA<c>{}<stop><x>T") == "A<c>{}<stop>"
    assert end("Q<s>modelA<c>{}<call><s>toolT") == "A<c>{}<call>"
    assert end("Q<s>modelA<c><x>T") is None, "which of the tokens ends the turn is unknown"
    assert located("Q<s>modelA<c>{}<call>", turns) == "A<c>{}<call>", "the last turn"


def test_special_tokens_that_the_user_wrote_end_nothing() -> None:
    turns = TurnFormat(SPECIAL, frozenset(["<e>"]), header="<s>", ending="")
    assert located("Q<s>A<e>b<r>", turns, [(5, 8)]) == "A<e>b<r>"


def test_generation_blocks_are_the_turns() -> None:
    marked = MarkedText("Q<s>A<e>", {0: (0, 1), 1: (4, 5)}, blocks=[(1, 5)])
    assert TurnFormat(SPECIAL).locate(marked, ROW) == {1: (1, 5)}
