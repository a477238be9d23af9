"""AdamW in eight bits and Muon: beside the libraries' own, in trainings, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from safetensors.torch import save_file
from torch.nn import Parameter

from tests.unit.tunery.ml.trainings import HYPER, STEPS, go, of, resumed
from tunery.ml import optimizers
from tunery.ml.adamw import MasterWeights
from tunery.ml.device import BF16_FLAGS
from tunery.ml.optimizers import optimizer_of
from tunery.ml.ranks import ALONE
from tunery.work.exits import WorkError
from tunery.work.spec import Engine, Hyper, TrainSpec

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
    pytest.mark.filterwarnings("ignore:invalid escape sequence"),  # of torchao
]
RATE, DECAY = 1e-2, 0.1
SIZES: dict[str, tuple[int, ...]] = {
    "table": (300, 32),
    "head": (300, 32),
    "matrix": (96, 64),
    "norm": (64,),
    "row": (1, 64),
    "experts": (2, 64, 64),
}
EIGHT_BITS, MUON = (
    replace(HYPER, optimizer=name, adaptation="full", learning_rate=RATE, weight_decay=DECAY)
    for name in ("adamw_8bit", "muon")
)


class Model(torch.nn.Module):
    """Weights of every kind, without a computation."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(0)
        for name, size in SIZES.items():
            part = torch.nn.Module()
            part.weight = Parameter(torch.randn(size).to(dtype))
            self.add_module(name, part)

    def get_input_embeddings(self) -> Any:
        return self.table

    def get_output_embeddings(self) -> Any:
        return self.head


def steps(ours: MasterWeights, first: int, last: int, copies: dict[str, Parameter]) -> None:
    """Take steps by gradients that follow from their numbers; `copies` get the gradients, too."""
    for number in range(first, last):
        generator = torch.Generator().manual_seed(number)
        for name, live in ours.live.items():
            live.grad = torch.randn(live.shape, generator=generator).to(live.dtype)
            if copies:
                copies[name.removesuffix(".weight")].grad = live.grad.float()
        ours.step()


def beside(
    hyper: Hyper,
    dtype: torch.dtype,
    theirs: Callable[[dict[str, Parameter]], list[torch.optim.Optimizer]],
) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Return each master after five steps, and what optimizers of libraries made of its copy."""
    ours = optimizer_of(Model(dtype), hyper, ALONE)
    copies = {
        name.removesuffix(".weight"): Parameter(master.detach().clone())
        for name, master in ours.masters.items()
    }
    optimizers_of_libraries = theirs(copies)
    for number in range(5):
        steps(ours, number, number + 1, copies)
        for each in optimizers_of_libraries:
            each.step()
    return {name: (ours.masters[f"{name}.weight"], copy) for name, copy in copies.items()}


def of_bitsandbytes(copies: dict[str, Parameter]) -> list[torch.optim.Optimizer]:
    from bitsandbytes.optim import AdamW8bit, AdamW32bit

    usual = [copies[name] for name in ("head", "matrix", "row", "experts")]
    return [
        AdamW8bit(usual, lr=RATE, weight_decay=DECAY),
        AdamW8bit([copies["norm"]], lr=RATE, weight_decay=0.0),
        AdamW32bit([copies["table"]], lr=RATE, weight_decay=DECAY),
    ]


def of_torch(copies: dict[str, Parameter]) -> list[torch.optim.Optimizer]:
    others = [copies[name] for name in ("table", "head", "row", "experts")]
    return [
        torch.optim.Muon(
            [copies["matrix"]], lr=RATE, weight_decay=DECAY, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(others, lr=RATE, weight_decay=DECAY),
        torch.optim.AdamW([copies["norm"]], lr=RATE, weight_decay=0.0),
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("hyper", "theirs"),
    [(EIGHT_BITS, of_bitsandbytes), (MUON, of_torch)],
    ids=["adamw_8bit", "muon"],
)
def test_masters_are_those_of_the_library_to_the_bit(
    hyper: Hyper, theirs: Any, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bf16, too: the library steps copies of the masters in fp32."""
    monkeypatch.setattr(optimizers, "cpu_flags", lambda: BF16_FLAGS)
    for name, (ours, library) in beside(hyper, dtype, theirs).items():
        assert torch.equal(ours, library), name


def test_products_in_fp32_are_those_of_bf16_but_for_the_last_bit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Processors without bf16 take them; an update has about the size of the rate."""
    monkeypatch.setattr(optimizers, "cpu_flags", frozenset)
    ours, library = beside(MUON, torch.float32, of_torch)["matrix"]
    assert float((ours - library).detach().abs().max()) < RATE / 20


@pytest.mark.parametrize("hyper", [EIGHT_BITS, MUON], ids=["adamw_8bit", "muon"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_steps_go_on_bit_for_bit_from_restored_state_and_a_rehearsal_changes_nothing(
    hyper: Hyper, dtype: torch.dtype, tmp_path: Path
) -> None:
    first = optimizer_of(Model(dtype), hyper, ALONE)
    steps(first, 0, 3, {})
    kept = {name: tensor.clone() for name, tensor in first.tensors().items()}
    save_file(kept, tmp_path / "optimizer.safetensors")
    steps(first, 3, 7, {})
    second = optimizer_of(Model(dtype), hyper, ALONE)
    second.restore(tmp_path)
    assert all(torch.equal(each, kept[name]) for name, each in second.tensors().items())
    steps(second, 3, 7, {})
    for name, tensor in first.tensors().items():
        assert torch.equal(tensor, second.tensors()[name]), name
    third = optimizer_of(Model(dtype), hyper, ALONE)
    before = {name: weight.detach().clone() for name, weight in third.live.items()}
    for weight in third.live.values():
        weight.grad = torch.ones_like(weight)
    third.rehearse()
    assert all(torch.equal(before[name], weight) for name, weight in third.live.items())
    assert not third.state


def test_moments_have_a_byte_but_for_tables_and_small_weights() -> None:
    eight_bits = optimizer_of(Model(torch.float32), EIGHT_BITS, ALONE)
    steps(eight_bits, 0, 1, {})
    widths = {
        name.split(".")[0]: tensor.element_size()
        for name, tensor in eight_bits.tensors().items()
        if name.endswith(".state1")
    }
    assert widths == {"table": 4, "head": 1, "matrix": 1, "norm": 4, "row": 4, "experts": 1}
    muon = optimizer_of(Model(torch.float32), MUON, ALONE)
    steps(muon, 0, 1, {})
    named = [name for name in muon.tensors() if name.endswith("momentum_buffer")]
    assert named == ["matrix.weight.momentum_buffer"]


@pytest.mark.parametrize(
    ("changed", "precision"),
    [
        pytest.param({}, "fp32", id="lora"),
        pytest.param({"adaptation": "full", "learning_rate": 1e-3}, "fp32", id="full"),
        pytest.param({"adaptation": "qlora"}, "fp32", id="qlora", marks=pytest.mark.soak),
        pytest.param(
            {"lora_plus": 4.0, "dora": True}, "fp32", id="dora, lora plus", marks=pytest.mark.soak
        ),
        pytest.param({}, "fp8", id="fp8", marks=pytest.mark.soak),
    ],
)
@pytest.mark.parametrize("optimizer", ["adamw_8bit", "muon"])
def test_the_loss_falls_and_a_resume_ends_with_the_same_bytes(
    spec: TrainSpec, optimizer: Any, changed: dict[str, Any], precision: Any
) -> None:
    hyper = replace(HYPER, optimizer=optimizer, dropout=0.0, rank=64, **changed)
    spec = replace(spec, hyper=hyper, precision=precision)
    _, whole = go(spec)
    losses = [event["loss"] for event in of(whole, "step")]
    assert len(losses) == STEPS
    assert losses[-1] < losses[0]
    assert ("bitsandbytes" in whole[0]["environment"]) == hyper.needs_bitsandbytes
    checkpoint = of(whole, "checkpoint")[1]
    _, again = go(resumed(spec, checkpoint, out="again"))
    assert again[0]["resumed_from_step"] == checkpoint["step"]
    assert again[-1]["adapter_sha256"] == whole[-1]["adapter_sha256"]


@pytest.mark.parametrize(
    ("engine", "name", "advice"),
    [
        (Engine(name="fsdp2", weights="sharded"), "shard_weights", "Set it to false"),
        (Engine(name="deepspeed"), "the engine deepspeed", "Set engine to fsdp2"),
    ],
)
def test_other_engines_are_refused_by_name(
    spec: TrainSpec, engine: Engine, name: str, advice: str
) -> None:
    spec = replace(spec, hyper=replace(HYPER, optimizer="muon"), engine=engine)
    with pytest.raises(WorkError, match=f"does not run with {name}") as refused:
        go(spec)
    assert refused.value.advice.startswith(advice)
