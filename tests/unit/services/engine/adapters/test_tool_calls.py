"""Calls of tools: learnt from templates, and read out of what models write."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.engine.adapters.tool_calls import CallForm, CallReader, learn_form
from services.engine.ports import Say
from tunery.data.tokens.chat_template import Template
from tunery.work.engine import AnswerEnded, Reply, Spent, TextAdded, ToolCall

TAGS = CallForm("<tool_call>", "name", "arguments", "\n")
BARE = CallForm("", "name", "parameters")
RAIN = ToolCall("rain", '{"at": "A"}')
CALL = '<tool_call>\n{"name": "rain", "arguments": {"at": "A"}}\n</tool_call>'
BRACKETS = (
    "{{ bos_token }}{% if tools %}[TOOLS]{{ tools | tojson }}[/TOOLS]{% endif %}"
    "{% for m in messages %}{% if m.tool_calls %}[TOOL_CALLS] [{% for c in m.tool_calls %}"
    "{{ c.function | tojson }}{% endfor %}]{{ eos_token }}{% else %}{{ m.content }}{% endif %}"
    "{% endfor %}"
)
DEAF = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


def keep(said: list[Reply]) -> Say:
    """Takes parts of an answer, and wants more."""

    def say(reply: Reply) -> bool:
        said.append(reply)
        return True

    return say


def form_of(template: str) -> CallForm | None:
    written = Template(template, {"bos_token": "<s>", "eos_token": "</s>"})

    def write(messages: list[Any], tools: list[Any] | None, **options: Any) -> str:
        return written.render(messages, tools, **options)

    return learn_form(write, partial(write, add_generation_prompt=True))


@pytest.mark.train
@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("qwen2_5", TAGS),
        ("qwen3", TAGS),
        ("qwen3_instruct_2507", TAGS),
        ("llama3_1", BARE),
        ("llama3_2", BARE),
        ("llama3", None),
        ("gemma3", None),
        ("phi3", None),
        ("lfm2_v2", None),
    ],
)
def test_how_public_templates_write_calls(name: str, form: CallForm | None) -> None:
    import trl

    folder = Path(str(trl.__file__)).parent / "chat_templates"
    assert form_of((folder / f"{name}.jinja").read_text(encoding="utf-8")) == form


def test_a_list_of_calls_and_a_template_without_tools() -> None:
    assert form_of(BRACKETS) == CallForm("[TOOL_CALLS]", "name", "arguments", " [")
    assert form_of(DEAF) is None


@pytest.mark.parametrize(
    ("form", "written", "text", "calls"),
    [
        (TAGS, f"Let me look.\n{CALL}", "Let me look.", (RAIN,)),
        (TAGS, f"{CALL}\n{CALL}", "", (RAIN, RAIN)),
        (TAGS, "It is <b>dry</b>.", "It is <b>dry</b>.", ()),
        (TAGS, '<tool_call>\n{"name": "rain"', '<tool_call>\n{"name": "rain"', ()),
        (TAGS, '<tool_call>{"name": 3}', '<tool_call>{"name": 3}', ()),
        (BARE, '{"name": "rain", "parameters": {"at": "A"}}', "", (RAIN,)),
        (BARE, '{"a": 1}', '{"a": 1}', ()),
        (BARE, "Dry.", "Dry.", ()),
        (
            BARE,
            'So: {"name": "rain", "parameters": {}}',
            'So: {"name": "rain", "parameters": {}}',
            (),
        ),
        (
            CallForm("[TOOL_CALLS]", "name", "arguments"),
            '[TOOL_CALLS] [{"name": "rain", "arguments": {"at": "A"}}]',
            "",
            (RAIN,),
        ),
    ],
)
@given(cuts=st.lists(st.integers(0, 80), max_size=8))
def test_calls_are_read_however_the_answer_is_cut(
    form: CallForm, written: str, text: str, calls: tuple[ToolCall, ...], cuts: list[int]
) -> None:
    said: list[Reply] = []
    reader = CallReader(form, keep(said))
    at = 0
    for cut in sorted({min(cut, len(written)) for cut in (*cuts, len(written))}):
        assert reader(TextAdded(written[at:cut]))
        at = cut
    assert reader(AnswerEnded("stop", 3, 9))
    shown = "".join(reply.text for reply in said if isinstance(reply, TextAdded))
    assert shown.rstrip() == text
    ended = said[-1]
    assert isinstance(ended, AnswerEnded)
    assert ended.tool_calls == calls
    assert ended.finish_reason == ("tool_calls" if calls else "stop")


def test_what_was_cut_off_is_text() -> None:
    said: list[Reply] = []
    reader = CallReader(TAGS, keep(said))
    reader(TextAdded(CALL))
    reader(AnswerEnded("length", 3, 9))
    assert said[-2:] == [TextAdded(CALL, spent=Spent(3, 0, 9)), AnswerEnded("length", 3, 9)]


@pytest.mark.parametrize("form", [TAGS, BARE])
def test_a_forced_call_is_the_rest_of_what_its_prompt_began(form: CallForm) -> None:
    said: list[Reply] = []
    reader = CallReader(form, keep(said), forced=True)
    reader(TextAdded(f'{{"name": "rain", "{form.arguments}": {{"at": "A"}}}}'))
    reader(AnswerEnded("stop", 3, 9))
    assert said[-1] == AnswerEnded("tool_calls", 3, 9, tool_calls=(RAIN,))
    said.clear()
    reader = CallReader(form, keep(said), forced=True)
    reader(TextAdded('{"name": '))
    reader(AnswerEnded("length", 3, 9))
    assert "".join(part.text for part in said if isinstance(part, TextAdded)) == '{"name": '


def test_text_before_a_call_is_passed_on_at_once() -> None:
    said: list[Reply] = []
    reader = CallReader(TAGS, keep(said))
    reader(TextAdded("Well <tool"))
    assert said == [TextAdded("Well ")]
