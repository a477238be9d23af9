"""A layout learnt from one conversation locates the turns of others with the same roles."""

from typing import Any

import pytest

from tunery.data.dialects.conversation import Conversation
from tunery.data.tokens.message_marks import MarkedText
from tunery.data.tokens.template_layout import (
    TemplateLayout,
    learn_layout,
    roles_of,
    sample_conversation,
)

ROLES = ("user", "assistant", "user", "assistant")


def messages(*texts: str) -> list[dict[str, Any]]:
    return [{"role": role, "content": text} for role, text in zip(ROLES, texts, strict=False)]


def render(texts: list[str]) -> tuple[MarkedText, dict[int, tuple[int, int]]]:
    """Each message as `[text]`; a turn of the assistant includes the closing bracket."""
    marked = MarkedText()
    for number, text in enumerate(texts):
        start = len(marked.text) + 1
        marked.messages[number] = (start, start + len(text))
        marked.text += f"[{text}]"
    turns = {
        number: (start, end + 1) for number, (start, end) in marked.messages.items() if number % 2
    }
    return marked, turns


def learnt_layout() -> TemplateLayout:
    texts = ["Text 0", "Text 1"]
    layout = learn_layout(messages(*texts), *render(texts))
    assert layout is not None
    return layout


@pytest.mark.parametrize("texts", [["Hi", "Yo"], ["", ""], ["[", "]]"], ["\U0001f600é", " \n"]])
def test_turns_follow_from_the_lengths_of_the_messages(texts: list[str]) -> None:
    marked, turns = render(texts)
    assert learnt_layout().turns(messages(*texts), marked.text) == turns


@pytest.mark.parametrize("text", ["[Hi][yo]", "[Hi][Yo] ", "", "[Hi]\n[Yo]"])
def test_a_text_of_another_layout_has_no_turns(text: str) -> None:
    assert learnt_layout().turns(messages("Hi", "Yo"), text) is None


def test_a_template_that_changes_or_leaves_out_a_message_has_no_layout() -> None:
    marked, turns = render(["HI", "Yo"])
    assert learn_layout(messages("Hi", "Yo"), marked, turns) is None
    marked, turns = render(["Hi"])
    assert learn_layout(messages("Hi", "Yo"), marked, turns) is None


def test_a_template_that_reverses_the_messages_has_no_layout() -> None:
    reversed_order = MarkedText("YoHi", {0: (2, 4), 1: (0, 2)})
    assert learn_layout(messages("Hi", "Yo"), reversed_order, {1: (0, 2)}) is None


def test_only_plain_messages_without_tools_have_roles_that_determine_the_layout() -> None:
    plain = messages("Hi", "Yo")
    assert roles_of(Conversation(plain, [False, True])) == ("user", "assistant")
    assert roles_of(Conversation(plain, [False, True], tools=[])) is None
    named = [{**plain[0], "name": "Ann"}, plain[1]]
    assert roles_of(Conversation(named, [False, True])) is None
    assert roles_of(Conversation([], [])) == ()


def test_a_sample_has_its_roles_and_a_distinct_text_in_each_message() -> None:
    sample = sample_conversation(ROLES)
    assert roles_of(sample) == ROLES
    assert len({message["content"] for message in sample.messages}) == len(ROLES)
    assert sample.trained == [False, True, False, True]
