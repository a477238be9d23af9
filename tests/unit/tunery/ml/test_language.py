"""Wrappers train their language model alone; layers of Mamba that take no adapter get none."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.families import write_tiny
from tests.unit.tunery.ml.trainings import go, of, on
from tunery.ml.adapters import verify_loads
from tunery.work.exits import ExitCode, WorkError
from tunery.work.spec import TrainSpec

pytestmark = [
    pytest.mark.train,
    # peft 0.21 and trl 1.16 ask transformers 5 by names that are going away
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),  # of a family about its own kernels
    # peft names experts of a mixture that transformers 5 has in one tensor
    pytest.mark.filterwarnings("ignore:The following .*_pattern keys:RuntimeWarning"),
]


def tensors_of(finished: dict[str, Any], file: str = "adapter_model.safetensors") -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(Path(finished["adapter_dir"]) / file)


def test_review2_f2_a_wrapper_that_is_no_causal_model_trains_its_language_model(
    spec: TrainSpec, tmp_path: Path
) -> None:
    code, events = go(on(spec, write_tiny("mistral3", tmp_path / "base")))
    assert (code, len(of(events, "step"))) == (ExitCode.FINISHED, 2)


def test_review2_f3_adapters_of_a_wrapper_are_in_its_language_model_alone(
    spec: TrainSpec, tmp_path: Path
) -> None:
    folder = write_tiny("gemma3", tmp_path / "base")
    _, events = go(on(spec, folder))
    trained = tensors_of(events[-1])
    assert trained
    assert all(".language_model." in name for name in trained)
    assert all(bool(weight.any()) for name, weight in trained.items() if "lora_B" in name)
    named = on(spec, folder, target_modules=("q_proj",))  # the tower has one of that name, too
    _, events = go(msgspec.structs.replace(named, out_dir=str(tmp_path / "named")))
    assert all(".language_model." in name for name in tensors_of(events[-1]))
    with pytest.raises(WorkError, match="no picture passes") as caught:
        go(on(spec, folder, target_modules=("fc1",)))
    assert caught.value.cause == "user"


def test_review2_f3_all_weights_of_a_wrapper_are_those_of_its_language_model(
    spec: TrainSpec, tmp_path: Path
) -> None:
    from safetensors.torch import load_file

    folder = write_tiny("gemma3", tmp_path / "base")
    _, events = go(on(spec, folder, adaptation="full", rank=0, alpha=0))
    before = load_file(folder / "model.safetensors")
    after = tensors_of(events[-1], "model.safetensors")
    assert after.keys() == before.keys()
    changed = {name for name in after if not bool((after[name].bfloat16() == before[name]).all())}
    assert changed
    assert not [name for name in changed if "vision" in name or "projector" in name]


def test_review2_f6_layers_of_mamba_that_take_no_adapter_are_left_out_and_named(
    spec: TrainSpec, tmp_path: Path
) -> None:
    folder = write_tiny("mamba2", tmp_path / "base")
    code, events = go(on(spec, folder, packing=False))
    assert (code, len(of(events, "step"))) == (ExitCode.FINISHED, 2)
    assert {name.split(".lora_")[0].rpartition(".")[2] for name in tensors_of(events[-1])} == {
        "in_proj"
    }
    with pytest.raises(WorkError, match="is incompatible with Mamba-based models") as caught:
        go(on(spec, folder, packing=False, target_modules=("in_proj", "out_proj")))
    assert "in_proj" in caught.value.advice
    assert "out_proj" not in caught.value.advice


@pytest.mark.parametrize("family", ["gpt_oss", "llama4_text"])
def test_bases_experts_are_adapted_by_name_and_routers_are_left_out(
    family: str, spec: TrainSpec, tmp_path: Path
) -> None:
    folder = write_tiny(family, tmp_path / "base")
    asked = on(spec, folder, dropout=0.0)
    _, events = go(asked)
    layers = {name.split(".lora_")[0].rpartition(".")[2] for name in tensors_of(events[-1])}
    assert layers >= {"q_proj", "o_proj"}
    assert not layers & {"experts", "router"}
    names = ("q_proj", "experts.down_proj", "experts.gate_up_proj")
    code, events = go(on(asked, folder, target_modules=names))
    assert (code, len(of(events, "step"))) == (ExitCode.FINISHED, 2)
    adapted = {name.partition(".layers.0.")[2] for name in tensors_of(events[-1])} - {""}
    of_experts = {name for name in adapted if ".experts." in name}
    assert (len(of_experts), len(adapted - of_experts)) == (4, 2)
    proof = verify_loads(Path(events[-1]["adapter_dir"]), folder)
    assert proof.base_unchanged
    assert proof.adapter_effect_max > 0
    with pytest.raises(WorkError, match=r"target_modules names 'experts\.w1'") as caught:
        go(on(spec, folder, target_modules=("experts.w1",)))
    assert "experts.down_proj" in caught.value.advice
