"""Chat templates of tenants take no more than their share beside the engine."""

import time
from pathlib import Path

import pytest

from services.engine.adapters import own_tokenizer
from services.engine.adapters.own_tokenizer import OwnTokenizer
from tests.unit.services.ingest.base import TEMPLATE, make_base
from tunery.data.tokens.base_variants import write_tokenizer
from tunery.data.tokens.chat_template import TemplateError
from tunery.data.tokens.tokenizer import BaseUnusable, Tokenizer
from tunery.work.own_chat import OwnChat

HI = [{"role": "user", "content": "What is lantern 3?"}]
WHERE = "{% if messages|length == 3 %}"  # so that the template is usable
GROWS = WHERE + "{% set ns = namespace(s='a'*9000) %}" + "{% set ns.s = ns.s ~ ns.s %}" * 20
WAITS = (
    f"{WHERE}{{% for i in range(99999) %}}{{% for j in range(99999) %}}{{% endfor %}}{{% endfor %}}"
)


def own(folder: Path, template: str) -> Path:
    return write_tokenizer(make_base(folder / "base"), OwnChat(template), folder / "own")


def test_bases_f7_questions_are_those_of_a_tokenizer_in_this_process(tmp_path: Path) -> None:
    folder = own(tmp_path, f"{TEMPLATE}{{# own #}}")
    apart, here = OwnTokenizer(folder), Tokenizer.load(folder)
    assert apart.encode_question(HI, None) == here.encode_question(HI, None)
    assert apart.write_chat(HI, None) == here.write_chat(HI, None)
    assert apart.decode(apart.encode_text("light")) == "light"
    assert apart.stop_ids == here.stop_ids
    with pytest.raises(BaseUnusable, match="the chat template is unusable"):
        OwnTokenizer(own(tmp_path / "other", "{% for %}"))


@pytest.mark.parametrize(
    ("template", "why"),
    [(GROWS, "memory"), (WAITS, "took longer than 1 s")],
    ids=["memory", "time"],
)
def test_bases_f7_a_hostile_template_is_stopped_and_its_tokenizer_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, template: str, why: str
) -> None:
    if "longer" in why:
        monkeypatch.setattr(own_tokenizer, "REPLY_S_MAX", 1.0)
    apart = OwnTokenizer(own(tmp_path, f"{template}{{% endif %}}{TEMPLATE}"))
    began = time.monotonic()
    with pytest.raises(TemplateError, match=why):
        apart.encode_question(HI * 3, None)
    assert time.monotonic() - began < 20
    monkeypatch.undo()
    assert apart.encode_question(HI, None)
