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
    MessagePart,
    MessageTagger,
    choose_marks,
    collect_texts,
    quote_special,
    remove_marks,
)

MARKS_CHOSEN = Marks(*NONCHARACTERS[:MARKS])
SPECIAL = re.compile(r"<end>")


def user(content: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


@given(st.lists(st.text(max_size=20), min_size=1, max_size=5))
def test_tagged_messages_are_located_and_the_text_is_restored(texts: list[str]) -> None:
    marks = choose_marks([user(text) for text in texts], None)
    assert marks is not None
    tagger = MessageTagger(marks)
    tagged = [tagger.tag(number, user(text))["content"] for number, text in enumerate(texts)]
    marked = remove_marks(" | ".join(tagged), marks, tagger.parts)
    assert marked.dropped == []
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


def tag(number: int) -> str:
    return f"{MARKS_CHOSEN.tag_opens}{number}{MARKS_CHOSEN.tag_closes}"


def assistant(content: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def test_tags_stand_inside_the_white_space_around_a_text() -> None:
    tagged = MessageTagger(MARKS_CHOSEN).tag(3, user("\n two words "))
    assert tagged == user(f"\n {tag(0)}two words{tag(0)} ")


def test_reasoning_inside_an_answer_or_beside_it_is_a_part_of_its_own() -> None:
    tagger = MessageTagger(MARKS_CHOSEN)
    inside = tagger.tag(1, assistant("<think>\nhm\n</think>\n\nYes"))
    assert inside["content"] == f"<think>\n{tag(0)}hm{tag(0)}\n</think>\n\n{tag(1)}Yes{tag(1)}"
    beside = tagger.tag(3, assistant("No", reasoning_content="so so"))
    assert beside["reasoning_content"] == f"{tag(3)}so so{tag(3)}"
    assert tagger.tag(4, user("<think>a</think>b"))["content"].startswith(f"{tag(4)}<think>")
    assert [(part.message, part.kind, part.text) for part in tagger.parts[:4]] == [
        (1, "reasoning", "hm"),
        (1, "text", "Yes"),
        (3, "text", "No"),
        (3, "reasoning", "so so"),
    ]


def test_every_call_is_tagged_at_its_name() -> None:
    calls = [{"id": number, "function": {"name": name}} for number, name in enumerate("ab")]
    tagger = MessageTagger(MARKS_CHOSEN)
    tagged = tagger.tag(0, assistant(" ", tool_calls=calls))
    names = [call["function"]["name"] for call in tagged["tool_calls"]]
    assert names == [f"{tag(0)}a{tag(0)}", f"{tag(1)}b{tag(1)}"]
    assert tagged["content"] == " "


def test_parts_that_a_template_leaves_out_or_cuts_are_named() -> None:
    parts = [MessagePart(0, "reasoning", "hm"), MessagePart(0, "text", "Yes")]
    cut = f"x{tag(0)} {tag(1)}Yes{tag(1)} {tag(1)}Yes{tag(1)}"
    marked = remove_marks(cut, MARKS_CHOSEN, parts)
    assert (marked.text, marked.dropped) == ("x Yes Yes", parts[:1])
    assert marked.messages == {0: (2, 5)}, "the first of two occurrences counts"


def test_special_tokens_of_the_user_and_generation_blocks_are_located() -> None:
    quoted = quote_special([{"a<end>": "b<end>c"}, 5, None], SPECIAL, MARKS_CHOSEN)
    assert [list(quoted[0]), *quoted[1:]] == [["a<end>"], 5, None]
    block = f"{MARKS_CHOSEN.block_opens}{quoted[0]['a<end>']}{MARKS_CHOSEN.block_closes}"
    marked = remove_marks(f"x{block}", MARKS_CHOSEN, ())
    assert (marked.text, marked.plain, marked.blocks) == ("xb<end>c", [(2, 7)], [(1, 8)])
