"""Models of known shapes: those that are written can be described, and are what was asked for."""

from pathlib import Path

import pytest

from bench import shapes
from services.gateway.models.base_folders import describe
from tests.bases import tiny_base

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
EXPERTS = {"head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2}


@pytest.mark.train
@pytest.mark.soak
@pytest.mark.parametrize("shape", ["llama_8b", "gpt_oss_6l"])
def test_a_base_has_the_shape_and_the_words_it_was_given(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config_class, values = shapes.SHAPES[shape]
    smaller = {**values, **SMALL, **(EXPERTS if "Oss" in config_class else {})}
    monkeypatch.setattr(shapes, "SHAPES", {shape: (config_class, smaller)})
    folder = shapes.write_base(shape, tmp_path / "base", tiny_base().dir)
    base = describe("random", folder, "")
    inner = 128 * smaller.get("num_experts_per_tok", 1)
    assert (base.hidden_size, base.layers, base.inner_size) == (64, 2, inner)
    assert base.vocabulary == describe("tiny", tiny_base().dir, "").vocabulary
    assert (folder / "tokenizer.json").is_file()
