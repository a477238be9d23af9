import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.unit.tunery.ml.trainings import tiny_mixture
from tunery.cli.model import name_base
from tunery.ml.adapters import (
    CONFIG,
    WEIGHTS,
    Canonical,
    adapted,
    main,
    verify_loads,
    write_canonical,
)
from tunery.work.exits import WorkError

pytestmark = [
    pytest.mark.train,
    # peft 0.21 asks transformers 5 by a name that is going away
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]
SHA256 = "ab" * 32


@pytest.fixture(scope="module")
def saved(tiny: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter with an effect, as PEFT saves it."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(5)
    base = AutoModelForCausalLM.from_pretrained(tiny[0], dtype=torch.float32)
    config = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    model: Any = get_peft_model(base, config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.1)
    directory = tmp_path_factory.mktemp("saved") / "raw"
    model.save_pretrained(directory)
    return directory


def canonicalise(source: Path, target: Path) -> Canonical:
    """Write an adapter that PEFT saved in canonical form."""
    config = json.loads((source / CONFIG).read_text())
    return write_canonical(load_file(source / WEIGHTS), config, target, "tiny")


def test_a_canonical_adapter_is_two_files_without_paths(saved: Path, tmp_path: Path) -> None:
    written = canonicalise(saved, tmp_path / "one")
    files = sorted((tmp_path / "one").iterdir())
    assert [path.name for path in files] == [CONFIG, WEIGHTS]
    assert written["bytes"] == sum(path.stat().st_size for path in files)
    config = json.loads((tmp_path / "one" / CONFIG).read_text())
    assert config["base_model_name_or_path"] == "tiny"
    assert config["target_modules"] == sorted(config["target_modules"])
    assert "/" not in json.dumps(config)


def test_equal_adapters_have_equal_bytes(saved: Path, tmp_path: Path) -> None:
    first = canonicalise(saved, tmp_path / "one")
    assert canonicalise(tmp_path / "one", tmp_path / "two") == first
    other = tmp_path / "shuffled"
    other.mkdir()
    tensors = load_file(saved / WEIGHTS)
    save_file(dict(reversed(tensors.items())), other / WEIGHTS, metadata={"written": "elsewhere"})
    config = json.loads((saved / CONFIG).read_text())
    config["target_modules"] = sorted(config["target_modules"], reverse=True)
    config["base_model_name_or_path"] = "/home/someone/models/tiny"
    (other / CONFIG).write_text(json.dumps(dict(reversed(config.items()))))
    assert canonicalise(other, tmp_path / "three") == first


def test_it_loads_and_gives_the_same_logits(
    saved: Path, tiny: tuple[Path, str], tmp_path: Path
) -> None:
    canonicalise(saved, tmp_path / "one")
    proof = verify_loads(tmp_path / "one", tiny[0], saved)
    assert proof.base_unchanged
    assert proof.adapter_effect_max > 0.1
    assert proof.reference_difference_max == 0.0


def test_different_adapters_have_different_bytes(
    saved: Path, tiny: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    canonicalise(saved, tmp_path / "one")
    tensors = load_file(saved / WEIGHTS)
    name = next(name for name in tensors if "lora_B" in name)
    save_file({**tensors, name: tensors[name] * 1.01}, tmp_path / "one" / WEIGHTS)
    assert main(["verify", str(tmp_path / "one"), str(tiny[0]), str(saved)]) != 0
    assert json.loads(capsys.readouterr().out)["reference_difference_max"] > 0
    assert main(["verify", str(saved), str(tiny[0]), str(saved)]) == 0


def poison(directory: Path) -> None:
    tensors = load_file(directory / WEIGHTS)
    next(iter(tensors.values()))[0, 0] = torch.nan
    save_file(tensors, directory / WEIGHTS)


def graft(directory: Path) -> None:
    tensors = {**load_file(directory / WEIGHTS), "lm_head.weight": torch.ones(1)}
    save_file(tensors, directory / WEIGHTS)


@pytest.mark.parametrize(
    ("alter", "what"),
    [(poison, "NaN or infinity"), (graft, "no LoRA weight")],
)
def test_a_folder_without_an_adapter_is_refused(
    saved: Path, tmp_path: Path, alter: Callable[[Path], None], what: str
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in (WEIGHTS, CONFIG):
        (source / name).write_bytes((saved / name).read_bytes())
    alter(source)
    with pytest.raises(WorkError) as caught:
        canonicalise(source, tmp_path / "out")
    assert what in caught.value.message
    assert not (tmp_path / "out").exists()


@pytest.mark.filterwarnings("ignore:The following .*_pattern keys:RuntimeWarning")  # PEFT's own
@pytest.mark.parametrize(
    ("layers", "adapted_layers", "left"),
    [
        ("all-linear", "in experts, gate, k_proj, o_proj, q_proj, v_proj;", False),
        (["q_proj", "v_proj"], "in q_proj, v_proj;", True),
    ],
)
def test_training_adapted_and_other_layers_of_a_mixture_are_listed(
    layers: str | list[str], adapted_layers: str, left: bool
) -> None:
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(r=2, target_modules=layers, task_type="CAUSAL_LM")
    model: Any = get_peft_model(tiny_mixture(vocabulary=64), lora)
    said = adapted(model)
    assert adapted_layers in said
    assert ("down_proj, gate_up_proj of the experts" in said and "are not adapted" in said) == left


def test_first_hour_13_a_downloaded_adapter_loads_the_usual_way(
    saved: Path, tiny: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the only folder that is named, and without any network."""
    from peft import AutoPeftModelForCausalLM, PeftModel
    from transformers import AutoModelForCausalLM

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    folder = tmp_path / "adapter"
    canonicalise(saved, folder)
    name_base(folder, str(tiny[0]), None)
    model = AutoPeftModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    base = AutoModelForCausalLM.from_pretrained(tiny[0], dtype=torch.float32)
    ids = torch.tensor([[1, 5, 9, 2]])
    plain = base(ids).logits
    expected = PeftModel.from_pretrained(base, saved).eval()(ids).logits
    assert torch.equal(model(ids).logits, expected)
    assert not torch.equal(expected, plain), "the adapter has an effect"
