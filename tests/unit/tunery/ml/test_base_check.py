import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

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
    from safetensors.torch import load_file, save_file

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


def test_more_right_answers_are_rarer_by_chance() -> None:
    assert at_least(0, 40, 0.25) == pytest.approx(1)
    assert at_least(10, 40, 0.25) > 0.5
    assert at_least(20, 40, 0.25) < 0.001
