"""Marks pass through a template, and give back the text and where its messages were."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunery.data.tokens.message_marks import (
    MARKS,
    NONCHARACTERS,
    Marks,
    choose_marks,
    collect_texts,
    quote_special,
    remove_marks,
    tag_message,
)

MARKS_CHOSEN = Marks(*NONCHARACTERS[:MARKS])
SPECIAL = re.compile(r"<end>")


def user(content: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


@given(st.lists(st.text(max_size=20), min_size=1, max_size=5))
def test_tagged_messages_are_located_and_the_text_is_restored(texts: list[str]) -> None:
    marks = choose_marks([user(text) for text in texts], None)
    assert marks is not None
    tagged = [
        tag_message(user(text), number, marks)["content"] for number, text in enumerate(texts)
    ]
    marked = remove_marks(" | ".join(tagged), marks)
    assert marked.text == " | ".join(texts)
    assert {number: marked.text[slice(*span)] for number, span in marked.messages.items()} == {
        number: text.strip() for number, text in enumerate(texts) if text.strip()
    }


def test_marks_do_not_occur_in_the_row() -> None:
    tools = [{NONCHARACTERS[1]: [NONCHARACTERS[3]]}]
    marks = choose_marks([user(NONCHARACTERS[0])], tools)
    assert marks is not None
    used = {NONCHARACTERS[0], NONCHARACTERS[1], NONCHARACTERS[3]}
    assert used.isdisjoint(getattr(marks, name) for name in Marks.__slots__)


@pytest.mark.parametrize(("left", "has_marks"), [(MARKS, True), (MARKS - 1, False)])
def test_a_row_needs_six_noncharacters_that_it_does_not_use(left: int, has_marks: bool) -> None:
    used = "".join(NONCHARACTERS[: len(NONCHARACTERS) - left])
    assert (choose_marks([user(used)], None) is not None) is has_marks


def test_texts_are_collected_from_any_depth_without_recursion() -> None:
    deep: Any = "core"
    for _ in range(100_000):
        deep = [deep]
    assert collect_texts((deep, {"key": ("value", 1, None)})) == ["value", "key", "core"]


def test_tags_stand_inside_the_white_space_around_a_text() -> None:
    tag = f"{MARKS_CHOSEN.tag_opens}3{MARKS_CHOSEN.tag_closes}"
    tagged = tag_message(user("\n two words "), 3, MARKS_CHOSEN)
    assert tagged == user(f"\n {tag}two words{tag} ")


def test_a_message_without_text_is_tagged_at_its_first_call() -> None:
    calls = [{"id": "1", "function": {"name": "look", "arguments": "{}"}}, {"id": "2"}]
    tagged = tag_message(user(" ", tool_calls=calls), 0, MARKS_CHOSEN)
    assert MARKS_CHOSEN.pattern().sub("", tagged["tool_calls"][0]["function"]["name"]) == "look"
    assert (tagged["content"], tagged["tool_calls"][1]) == (" ", {"id": "2"})
    assert tag_message(user(" "), 0, MARKS_CHOSEN) == user(" ")


def test_special_tokens_of_the_user_and_generation_blocks_are_located() -> None:
    quoted = quote_special([{"a<end>": "b<end>c"}, 5, None], SPECIAL, MARKS_CHOSEN)
    assert [list(quoted[0]), *quoted[1:]] == [["a<end>"], 5, None]
    block = f"{MARKS_CHOSEN.block_opens}{quoted[0]['a<end>']}{MARKS_CHOSEN.block_closes}"
    marked = remove_marks(f"x{block}", MARKS_CHOSEN)
    assert (marked.text, marked.plain, marked.blocks) == ("xb<end>c", [(2, 7)], [(1, 8)])
