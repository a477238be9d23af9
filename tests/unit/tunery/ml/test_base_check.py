import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.families import write_tiny
from tunery.ml.base_check import at_least, check

pytestmark = pytest.mark.train


@pytest.fixture(name="folder")
def copied(tiny: tuple[Path, str], tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny[0], tmp_path / "base"))


def change(file: Path, **fields: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


def names(folder: Path) -> list[str]:
    return [problem.name for problem in check(folder).problems]


def test_a_model_of_random_weights_can_be_added_with_a_note(folder: Path) -> None:
    tried = check(folder)
    assert tried.problems == ()
    assert tried.items > 40
    assert 0.2 < tried.chance < 0.5
    assert tried.right < tried.items / 2
    assert "as chance does" in tried.notes[-1]


def test_a_folder_without_weights_does_not_load(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert names(folder) == ["does_not_load"]


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{{ 1 / 0 }}", "template_fails"),
        ("{% for message in messages %}x{% endfor %}", "template_hides_messages"),
    ],
)
def test_a_template_that_shows_no_message_is_named(folder: Path, template: str, name: str) -> None:
    (folder / "chat_template.jinja").write_text(template)
    assert names(folder) == [name]


def test_a_missing_template_is_named(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    assert names(folder) == ["template_missing"]


def test_a_template_without_an_end_is_reported(folder: Path) -> None:
    text = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    (folder / "chat_template.jinja").write_text(text)
    assert "trained models may not stop" in check(folder).notes[0]


def test_a_model_without_an_end_token_is_named(folder: Path) -> None:
    for name in ("tokenizer_config.json", "config.json", "generation_config.json"):
        if (folder / name).exists():
            change(folder / name, eos_token=None, eos_token_id=None)
    assert names(folder) == ["end_token_missing"]


def test_likelihoods_that_are_no_numbers_are_named(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = torch.full_like(tensors["model.norm.weight"], float("nan"))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert names(folder) == ["not_finite"]


def test_bad_input_a_vision_base_without_a_language_model_is_refused(folder: Path) -> None:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    (folder / "model.safetensors").unlink()
    ViTModel(config).save_pretrained(folder)
    assert names(folder) == ["no_language_model"]


def test_bad_input_code_of_a_base_is_never_run(folder: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (folder / "m.py").write_text(f"open({str(ran)!r}, 'w')")
    code = {"AutoConfig": "m.C", "AutoModelForCausalLM": "m.M"}
    change(folder / "config.json", auto_map=code)
    assert names(folder) == []  # transformers has the family
    change(folder / "config.json", model_type="strange")
    assert names(folder) == ["needs_own_code"]
    assert not ran.exists()


def test_bad_input_heads_that_are_tied_in_one_place_alone_are_refused(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(folder / "config.json", tie_word_embeddings=False)
    (problem,) = check(folder).problems  # transformers drew one at random
    assert (problem.name, "lm_head.weight" in problem.text) == ("weights_missing", True)
    change(folder / "config.json", tie_word_embeddings=True)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + 1
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert names(folder) == ["heads_disagree"]


def test_a_wrapper_whose_text_part_does_not_say_whether_tables_are_tied_is_taken(
    tmp_path: Path,
) -> None:
    assert names(write_tiny("qwen3_vl", tmp_path / "base")) == []


def test_bad_input_a_config_of_another_precision_and_two_end_tokens_are_taken(folder: Path) -> None:
    change(folder / "config.json", dtype="float32", eos_token_id=[0, 2])
    assert {each.dtype for each in load_file(folder / "model.safetensors").values()} == {
        torch.bfloat16
    }
    assert names(folder) == []


def test_bad_input_a_cut_shard_of_many_is_named(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    shards = {name: f"model-{at:05}-of-00100.safetensors" for at, name in enumerate(tensors)}
    index = {"metadata": {}, "weight_map": shards}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    for name, shard in shards.items():
        save_file({name: tensors[name]}, folder / shard, metadata={"format": "pt"})
    cut = folder / shards["model.norm.weight"]
    cut.write_bytes(cut.read_bytes()[:-1])
    (problem,) = check(folder).problems
    assert problem.name == "does_not_load"
    assert f"{cut} cannot be read" in problem.text


def test_more_right_answers_are_rarer_by_chance() -> None:
    assert at_least(0, 40, 0.25) == pytest.approx(1)
    assert at_least(10, 40, 0.25) > 0.5
    assert at_least(20, 40, 0.25) < 0.001
