"""The sandbox: the same text as transformers, and an end to everything a template might try."""

from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tunery.data.tokens import chat_template
from tunery.data.tokens.chat_template import Template, TemplateError

CHAT = [
    {"role": "system", "content": "Be <b>brief</b> & kind."},
    {"role": "user", "content": " Hé 😀?\n"},
    {"role": "assistant", "content": "Yes."},
    {"role": "user", "content": "And?"},
    {"role": "assistant", "content": "No."},
]
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content"
    " + '<|im_end|>\n' }}{% endfor %}"
)


def test_loop_controls_filters_and_globals() -> None:
    source = (
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% if m.role == 'system' %}"
        "{% continue %}{% endif %}{% set ns.n = ns.n + 1 %}{{ m.content | trim | tojson }}"
        "{% if ns.n == 2 %}{% break %}{% endif %}{% endfor %}{{ eos_token }}{{ dict(a=1).a }}"
    )
    assert Template(source, SPECIAL).render(CHAT, None) == '"Hé 😀?""Yes."</s>1'


def test_the_day_is_always_the_same() -> None:
    source = "{{ strftime_now('%d %b %Y') }}"
    assert Template(source, {}).render(CHAT, None) == "26 Jul 2024"
    assert date(2024, 7, 26) == chat_template.TEMPLATE_DAY


def test_a_template_may_refuse_a_row() -> None:
    template = Template("{{ raise_exception('Roles must alternate') }}", {})
    with pytest.raises(TemplateError, match="Roles must alternate"):
        template.render(CHAT, None)


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='x') }}",
        "{{ messages[0].content.missing() }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ 2 ** 100000000 }}",
        "{{ 'x' * 1000000000 }}",
        "{{ range(1000000000) | list }}",
        "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s * 2 %}{% endfor %}",
        "{% include '/etc/passwd' %}",
    ],
)
def test_templates_are_restricted(source: str) -> None:
    with pytest.raises(TemplateError):
        Template(source, {}).render(CHAT, None)


def test_endless_loops_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "TEMPLATE_MS_MAX", 50)
    loops = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    with pytest.raises(TemplateError, match="longer than 50 ms"):
        Template(loops, {}).render(CHAT, None)
    macros = "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
    with pytest.raises(TemplateError, match="longer than 50 ms"):
        Template(f"{macros}{{{{ f(40) }}}}", {}).render(CHAT, None)


def test_output_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "TEMPLATE_CHARS_MAX", 1000)
    with pytest.raises(TemplateError, match="more than 1,000 characters"):
        Template("{% for a in range(200) %}0123456789{% endfor %}", {}).render(CHAT, None)


def test_a_broken_template_is_named() -> None:
    with pytest.raises(TemplateError, match="does not compile"):
        Template("{% for m in messages %}", {})


def test_generation_blocks_are_marked_when_asked() -> None:
    source = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    template = Template(source, {})
    assert template.render(CHAT[2:3], None) == "Yes."
    assert template.render(CHAT[2:3], None, generation=("<", ">")) == "<Yes.>"


@pytest.mark.train
def test_published_templates_give_what_transformers_gives() -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    trl = find_spec("trl")  # its import takes seconds; its files are enough
    assert trl is not None
    assert trl.origin is not None
    paths = sorted((Path(trl.origin).parent / "chat_templates").glob("*.jinja"))
    assert len(paths) > 20
    same = 0
    for path in paths:
        source = path.read_text(encoding="utf-8")
        template = Template(source, SPECIAL)
        for chat in (CHAT, CHAT[1:], CHAT[1:3]):
            theirs, ours = "", ""
            failed: list[Any] = []
            try:
                theirs = render_jinja_template([chat], chat_template=source, **SPECIAL)[0][0]
            except Exception as error:  # whatever the template raises, ours must refuse as well
                failed.append(error)
            try:
                ours = template.render(chat, None)
            except TemplateError as error:
                failed.append(error)
            if "strftime_now" not in source:
                assert ours == theirs, path.name
            assert len(failed) in (0, 2), (path.name, failed)
            same += not failed
    assert same > 60


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a'.center(3000000000) | length }}",
        "{{ 'a' | center(3000000000) | length }}",
        "{{ 'a'.ljust(3000000000) | length }}",
        "{{ '1'.zfill(3000000000) | length }}",
        "{{ '%3000000000d' % 1 }}",
        "{{ '%3000000000d' | format(1) }}",
        "{{ '{:3000000000}'.format(1) | length }}",
        "{{ '{0:>{1}}'.format(1, 3000000000) | length }}",
        "{{ [1] | slice(99999999, 0) | list | length }}",
        "{{ range(10) | batch(99999999, 0) | list | length }}",
        "{{ 'a\nb' | indent(3000000000) | length }}",
        "{% set l = range(9999) | list %}{{ [l, l, l] | sum(start=[]) | length }}",
    ],
)
def test_security_m6_a_number_does_not_make_a_text_of_gigabytes(source: str) -> None:
    """Such templates took up to 3 GB, or more than 60 seconds."""
    with pytest.raises(TemplateError, match=r"it asks for|it sums"):
        Template(source, {}).render([], None)


def test_numbers_and_formats_of_ordinary_templates_are_allowed() -> None:
    source = "{{ '%5d' % 7 }}{{ '%s' % '100000' }}{{ [1, 2] | sum }}{{ '1000000: x' | indent(2) }}"
    assert Template(source, {}).render([], None) == "    710000031000000: x"
    assert Template("{{ '%s' | format(9) }}{{ '{:>3}'.format(1) }}", {}).render([], None) == "9  1"
