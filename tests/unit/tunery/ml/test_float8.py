"""Products in float8, which torchao emulates on processors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.unit.tunery.ml.rank_trainings import SHARDED, spec_of, trained
from tests.unit.tunery.ml.test_engines import FULL, alone, losses
from tests.unit.tunery.ml.trainings import Event, of, resumed
from tunery.work.exits import WorkError
from tunery.work.spec import TrainSpec

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
    # as torchao is compiled to bytecode, where it was not when it was installed
    pytest.mark.filterwarnings("ignore:invalid escape sequence"),
]
# Largest difference of a loss from that of bf16, of six steps of a tiny model (measured: 0.041).
NEAR = 0.08


@pytest.fixture
def tmp_path(folder_on_disk: Path) -> Path:
    """Ranks have a `/dev/shm` of their own, and quick tests have their folders there."""
    return folder_on_disk


@pytest.mark.parametrize(
    ("train", "hyper"),
    [
        (alone, {}),
        pytest.param(alone, FULL, marks=pytest.mark.soak),
        (trained, {}),
        pytest.param(trained, FULL, marks=pytest.mark.soak),
    ],
    ids=["single-lora", "single-full", "sharded-lora", "sharded-full"],
)
def test_losses_are_near_those_of_bf16_and_a_resume_ends_with_the_same_bytes(
    train: Callable[[TrainSpec], list[Event]], hyper: dict[str, Any], spec: TrainSpec
) -> None:
    """In one process, and in two ranks that gather weights in float8."""
    bf16 = replace(spec_of(spec, SHARDED, **hyper), precision="bf16", checkpoint_every_steps=2)
    spec = replace(bf16, precision="fp8", out_dir=f"{bf16.out_dir}-fp8")
    wanted, whole = losses(alone(bf16)), train(spec)
    assert losses(whole) == pytest.approx(wanted, abs=NEAR)
    assert losses(whole) != pytest.approx(wanted, abs=1e-3), "nothing was in float8"
    again = train(resumed(spec, of(whole, "checkpoint")[0], out="again"))
    assert again[-1]["adapter_sha256"] == whole[-1]["adapter_sha256"]
    started = of(again, "started")[0]
    assert started["environment_changes"] == []
    assert started["environment"].get("self_check", "equal") == "equal"


def small_layer(inner: int) -> Any:
    """A layer with a matrix and, as PEFT names it, a part of an adapter."""
    import torch

    layer = torch.nn.Module()
    layer.add_module("up_proj", torch.nn.Linear(32, inner, bias=False))
    layer.add_module("lora_A", torch.nn.ModuleDict({"default": torch.nn.Linear(32, 8)}))
    return layer


def test_matrices_are_converted_and_adapters_are_not() -> None:
    import torch

    from tunery.ml.float8 import use_float8

    layer = small_layer(64)
    use_float8([layer], torch.device("cpu"), gathers=False)
    assert type(layer.up_proj).__name__ == "Float8Linear"
    assert layer.up_proj.config.pad_inner_dim, "a GPU would refuse 17 tokens"
    assert type(layer.lora_A["default"]) is torch.nn.Linear


def test_sizes_that_are_no_multiples_are_refused_with_the_name_of_the_matrix() -> None:
    import torch

    from tunery.ml.float8 import use_float8

    with pytest.raises(WorkError, match=r"up_proj has the sizes \[40, 32\]") as refused:
        use_float8([small_layer(40)], torch.device("cpu"), gathers=False)
    assert (refused.value.cause, refused.value.advice) == (
        "user",
        "Set training.precision to bf16.",
    )


def test_a_gpu_without_such_products_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from tunery.ml.float8 import use_float8

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA A100")
    with pytest.raises(WorkError, match="A100 does not multiply float8"):
        use_float8([small_layer(64)], torch.device("cuda", 0), gathers=False)
