"""Proofs about templates: end of answers, tools, reasoning, follow-up questions."""

import shutil
from pathlib import Path

import pytest

from tests.bases import tiny_base
from tunery.data.template_proof import TemplateResult, prove_template
from tunery.data.tokens.tokenizer import BaseUnusable

TOOLS_AND_THINKING = """\
{%- if tools %}<|im_start|>system
{{ tools | tojson }}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{%- if message.reasoning_content %}
<think>{{ message.reasoning_content }}</think>{% endif %}
{{ message.content }}
{%- for call in message.tool_calls or [] %}<call>{{ call | tojson }}</call>{% endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def shown(tmp_path: Path, template: str | None = None) -> TemplateResult:
    """The result for the tiny base, or for one with another template."""
    folder = Path(shutil.copytree(tiny_base().dir, tmp_path / "base"))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    (tmp_path / "work").mkdir()
    return prove_template(folder, tmp_path / "work")


def test_a_template_without_tools_and_reasoning_is_reported_with_reasons(tmp_path: Path) -> None:
    result = shown(tmp_path)
    proof = result.proof
    assert (proof.streams, proof.end_token) == (True, "<|im_end|>")
    assert (proof.tools, proof.reasoning) == (False, False)
    assert [note.rpartition("(")[2] for note in result.notes] == [
        "template_without_tools)",
        "template_drops_text)",
    ]
    assert result.shard.is_file()


def test_a_template_with_tools_and_reasoning_has_both(tmp_path: Path) -> None:
    result = shown(tmp_path, TOOLS_AND_THINKING)
    assert (result.proof.tools, result.proof.reasoning, result.notes) == (True, True, ())


def test_a_template_that_counts_its_messages_does_not_stream(tmp_path: Path) -> None:
    counting = "<|im_start|>system\n{{ messages | length }}<|im_end|>\n" + TOOLS_AND_THINKING
    assert not shown(tmp_path, counting).proof.streams


def test_a_template_that_hides_answers_is_refused(tmp_path: Path) -> None:
    hiding = (
        "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"
    )
    with pytest.raises(BaseUnusable):
        shown(tmp_path, hiding)
