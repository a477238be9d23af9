"""Folders of base models with another chat template and other end tokens."""

import json
from pathlib import Path

import pytest

from tests.unit.services.ingest.base import make_base
from tunery.data.dialects.conversation import Conversation
from tunery.data.findings.finding import Note
from tunery.data.tokens.base_variants import TEMPLATE_BYTES_MAX, write_tokenizer, write_variant
from tunery.data.tokens.tokenizer import BaseUnusable, Tokenizer
from tunery.platform.blobs.base_files import hash_base
from tunery.work.own_chat import OwnChat

REASONS = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}"
    "{{ message['content'] + '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
REASONED = Conversation(
    [
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": "So.", "reasoning_content": "hm"},
    ],
    [False, True],
)


@pytest.fixture(name="base")
def small(tmp_path: Path) -> Path:
    """A base model of which only the tokenizer is used."""
    folder = make_base(tmp_path / "small")
    (folder / "config.json").write_text(json.dumps({"eos_token_id": 0}))
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "run.py").write_text("left behind")
    return folder


def test_bases_f7_a_template_that_shows_reasoning_makes_a_base_that_learns_it(base: Path) -> None:
    lost = Tokenizer.load(base).render(REASONED)
    assert isinstance(lost, Note)
    assert lost.code == "template_drops_text"
    before = hash_base(base)
    other = write_variant(base, REASONS, ())
    shown = Tokenizer.load(other).render(REASONED)
    assert not isinstance(shown, Note)
    (span,) = shown.trained
    assert shown.text[slice(*span)] == "<think>hm</think>So.<|im_end|>"
    assert (hash_base(base), hash_base(other) == before) == (before, False)
    assert other.parent == base.parent
    assert (other / "model.safetensors").stat().st_ino == (base / "model.safetensors").stat().st_ino
    assert not (other / "run.py").exists()


def test_bases_f7_the_same_again_is_found_and_another_is_another(base: Path) -> None:
    first = write_variant(base, REASONS, ())
    assert write_variant(base, REASONS, ()) == first
    assert write_variant(base, f"{REASONS}{{# 2 #}}", ()) != first
    assert sorted(path.name for path in base.parent.iterdir()).count("small") == 1
    assert not [path for path in base.parent.iterdir() if path.name.startswith(".")]


def test_bases_f7_end_tokens_end_answers_for_every_library(base: Path) -> None:
    (base / "generation_config.json").write_text(json.dumps({"top_p": 0.9, "eos_token_id": [0]}))
    (base / "special_tokens_map.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    other = write_variant(base, None, ("<|im_start|>",))
    generation = json.loads((other / "generation_config.json").read_bytes())
    assert generation == {"top_p": 0.9, "eos_token_id": [1, 0, 2]}
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        assert json.loads((other / name).read_bytes())["eos_token"] == "<|im_start|>"
    loaded = Tokenizer.load(other)
    assert loaded.eos == "<|im_start|>"
    assert loaded.template is not None
    assert json.loads((base / "generation_config.json").read_bytes())["eos_token_id"] == [0]


def test_bases_f7_what_does_not_fit_the_base_is_refused_by_name(base: Path) -> None:
    with pytest.raises(BaseUnusable, match=r"'<\|eot\|>' is no special token .* has <\|endoftext"):
        write_variant(base, None, ("<|im_end|>", "<|eot|>"))
    with pytest.raises(BaseUnusable, match=f"65537 bytes, at most {TEMPLATE_BYTES_MAX}"):
        write_variant(base, "x" * (TEMPLATE_BYTES_MAX + 1), ())
    with pytest.raises(BaseUnusable, match="9 end tokens, at most 8"):
        write_variant(base, None, ("<|im_end|>",) * 9)
    assert [path.name for path in base.parent.iterdir()] == ["small"]


def test_bases_f7_a_tokenizer_of_a_job_is_complete_without_weights(base: Path) -> None:
    own = write_tokenizer(base, OwnChat(REASONS), base.parent / "own")
    assert not (own / "model.safetensors").exists()
    loaded = Tokenizer.load(own)
    assert not isinstance(loaded.render(REASONED), Note)
    assert loaded.stop_ids == Tokenizer.load(base).stop_ids == (0, 2)
    (own / "config.json").unlink()  # an adapter has no such file beside it
    assert Tokenizer.load(own).stop_ids == (0, 2)
    ended = write_tokenizer(base, OwnChat(None, ("<|im_start|>",)), base.parent / "ended")
    assert Tokenizer.load(ended).stop_ids == (1, 0, 2)
    assert Tokenizer.load(ended).template is not None
