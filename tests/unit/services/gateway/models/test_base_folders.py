"""Description of a base model from the files in its folder, without loading tensors."""

import json
from pathlib import Path

import pytest

from services.gateway.models.base_folders import describe
from services.gateway.web.domain.errors import ApiError
from tunery.platform.blobs.base_files import hash_base
from tunery.platform.blobs.base_shapes import WITHOUT_SDPA


def a_base(folder: Path, **config: object) -> Path:
    folder.mkdir()
    settings = {
        "model_type": "qwen2",
        "max_position_embeddings": 512,
        "hidden_size": 8,
        **config,
    }
    (folder / "config.json").write_text(json.dumps(settings))
    header = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "BF16", "shape": [8, 4], "data_offsets": [0, 64]},
        "b": {"dtype": "BF16", "shape": [3], "data_offsets": [64, 70]},
    }
    text = json.dumps(header).encode()
    body = len(text).to_bytes(8, "little") + text + bytes(70)
    (folder / "model.safetensors").write_bytes(body)
    (folder / "tokenizer.json").write_text("{}")
    return folder


def test_the_hash_is_the_one_that_nodes_compare(tmp_path: Path) -> None:
    base = describe("b", a_base(tmp_path / "b"), "mit")
    assert base.sha256 == hash_base(tmp_path / "b")
    assert (base.parameters, base.context_length, base.hidden_size) == (35, 512, 8)
    assert (base.family, base.licence) == ("qwen", "mit")


def test_the_refusal_of_a_folder_names_the_problem(tmp_path: Path) -> None:
    a_base(tmp_path / "size", hidden_size="x")
    a_base(tmp_path / "weights")
    (tmp_path / "weights" / "model.safetensors").unlink()
    a_base(tmp_path / "header")
    (tmp_path / "header" / "model.safetensors").write_bytes(b"\xff" * 64)
    cases = {
        "missing": "config.json does not exist",
        "size": "config.json has no hidden_size",
        "weights": "has no *.safetensors",
        "header": "has no safetensors header",
    }
    for name, message in cases.items():
        with pytest.raises(ApiError) as caught:
            describe("b", tmp_path / name, "mit")
        assert caught.value.status == 400
        assert message in caught.value.message
    with pytest.raises(ApiError, match="absolute"):
        describe("b", Path("relative"), "mit")


def test_security_l7_a_refusal_does_not_quote_a_file(tmp_path: Path) -> None:
    (a_base(tmp_path / "b") / "config.json").write_bytes(b"secret \xff")
    with pytest.raises(ApiError, match="not UTF-8") as caught:
        describe("b", tmp_path / "b", "mit")
    assert "secret" not in caught.value.message


def test_security_l7_weights_outside_the_folder_are_refused(tmp_path: Path) -> None:
    """transformers would load bytes that the hash does not cover."""
    (a_base(tmp_path / "a") / "adapter_config.json").write_text("{}")
    with pytest.raises(ApiError, match="adapter_config"):
        describe("b", tmp_path / "a", "mit")
    base = a_base(tmp_path / "b")
    (base / "model.safetensors").rename(tmp_path / "other.safetensors")
    index = {"weight_map": {"a": "../other.safetensors"}}
    (base / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ApiError, match="other folders"):
        describe("b", base, "mit")


def test_training_m14_multi_modal_models_keep_their_sizes_in_text_config(tmp_path: Path) -> None:
    inner = {"model_type": "gemma3_text", "max_position_embeddings": 4096, "hidden_size": 16}
    folder = a_base(tmp_path / "shell", model_type="gemma3", text_config=inner)
    config = json.loads((folder / "config.json").read_text())
    for key in ("max_position_embeddings", "hidden_size"):
        del config[key]
    (folder / "config.json").write_text(json.dumps(config))
    base = describe("b", folder, "gemma")
    assert (base.context_length, base.hidden_size, base.family) == (4096, 16, "gemma")


def test_training_m13_other_files_of_a_download_do_not_count(tmp_path: Path) -> None:
    folder = a_base(tmp_path / "b")
    before = describe("b", folder, "mit")
    (folder / "original").mkdir()
    (folder / "original" / "consolidated.safetensors").write_bytes(b"no header")
    (folder / "README.md").write_text("read me")
    assert describe("b", folder, "mit") == before


def test_training_m5_heads_count_where_attention_keeps_each_pair_of_tokens(tmp_path: Path) -> None:
    for family, heads in (("gemma2", 4), ("qwen2", 0)):
        folder = a_base(tmp_path / family, model_type=family, num_attention_heads=4)
        assert describe("b", folder, "mit").eager_heads == heads
    folder = a_base(tmp_path / "without", model_type="mamba")
    assert describe("b", folder, "mit").eager_heads == 0


@pytest.mark.parametrize(
    ("config", "inner"),
    [
        ({"intermediate_size": 64}, 64),
        ({"intermediate_size": 64, "num_experts_per_tok": 4}, 256),  # Mixtral, gpt-oss
        ({"num_experts_per_tok": 8, "moe_intermediate_size": 16}, 128),  # Qwen3
        # Qwen2: a shared expert of a width of its own
        (
            {"moe_intermediate_size": 16, "num_experts_per_tok": 4}
            | {"shared_expert_intermediate_size": 100, "intermediate_size": 999},
            164,
        ),
        # DeepSeek: shared experts as wide as the others
        ({"moe_intermediate_size": 16, "num_experts_per_tok": 8, "n_shared_experts": 1}, 144),
    ],
)
def test_training_m5_a_token_goes_through_several_experts_at_once(
    tmp_path: Path, config: dict[str, int], inner: int
) -> None:
    assert describe("b", a_base(tmp_path / "b", **config), "mit").inner_size == inner


@pytest.mark.train
def test_training_m5_families_without_sdpa_are_those_of_transformers() -> None:
    import transformers
    from transformers.models.auto import modeling_auto

    names = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    assert {
        family for family, name in names.items() if not getattr(transformers, name)._supports_sdpa
    } == WITHOUT_SDPA
