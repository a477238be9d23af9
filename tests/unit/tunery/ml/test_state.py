import random
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.nn import Parameter

from tunery.ml import state
from tunery.ml.state import AdapterAdamW

pytestmark = pytest.mark.train


def weights(dtype: torch.dtype) -> dict[str, Parameter]:
    return {
        "b": Parameter(torch.full((3,), 1.0, dtype=dtype)),
        "a": Parameter(torch.full((2, 2), -1.0, dtype=dtype)),
    }


def steps(optimizer: AdapterAdamW, count: int) -> None:
    for _ in range(count):
        for weight in optimizer.live.values():
            weight.grad = weight.detach().clone()
        optimizer.step()


def test_updates_too_small_for_bf16_are_not_lost() -> None:
    live = weights(torch.bfloat16)
    optimizer = AdapterAdamW(live, rate=1e-4, weight_decay=0.0)
    steps(optimizer, 100)
    assert live["b"].dtype == torch.bfloat16
    assert float(live["b"].detach()[0]) == pytest.approx(0.99, abs=2e-3)
    plain = torch.optim.AdamW(weights(torch.bfloat16).values(), lr=1e-4, weight_decay=0.0)
    for _ in range(100):
        for group in plain.param_groups:
            for weight in group["params"]:
                weight.grad = weight.detach().clone()
        plain.step()
    assert float(plain.param_groups[0]["params"][0].detach()[0]) == 1.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_continues_bit_for_bit_from_restored_state(dtype: torch.dtype) -> None:
    first = AdapterAdamW(weights(dtype), rate=1e-2, weight_decay=0.1)
    steps(first, 3)
    tensors = {name: tensor.clone() for name, tensor in first.tensors().items()}
    groups = first.groups()
    steps(first, 4)
    second = AdapterAdamW(weights(dtype), rate=9.0, weight_decay=0.0)
    second.restore(tensors, groups)
    steps(second, 4)
    for name, weight in first.live.items():
        assert torch.equal(weight, second.live[name])
        assert torch.equal(first.masters[name], second.masters[name])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_m12_gradients_of_micro_batches_are_added_in_fp32(dtype: torch.dtype) -> None:
    """Finding M12: in bf16 a small gradient after a large one is lost."""
    weight = Parameter(torch.ones(1, dtype=dtype))
    optimizer = AdapterAdamW({"w": weight}, rate=1e-2, weight_decay=0.0)
    for factor in (1.0, *[2.0**-10] * 64):
        (weight * factor).sum().backward()  # type: ignore[no-untyped-call]  # torch
    (master,) = optimizer.masters.values()
    assert master.grad is not None
    assert float(master.grad) == 1.0 + 64 * 2.0**-10
    assert float(optimizer.clip(0.5)) == 1.0 + 64 * 2.0**-10
    assert float(master.grad) == pytest.approx(0.5)
    optimizer.step()
    assert [weight.grad for weight in (*optimizer.masters.values(), weight)] == [None, None]


def test_missing_state_is_an_error() -> None:
    first = AdapterAdamW(weights(torch.float32), rate=1e-2, weight_decay=0.0)
    steps(first, 1)
    tensors = first.tensors()
    del tensors["a.exp_avg_sq"]
    with pytest.raises(KeyError, match="exp_avg_sq"):
        first.restore(tensors, first.groups())


def test_what_is_copied_does_not_change_with_the_training(tmp_path: Path) -> None:
    """Its file has the bytes that saving the tensors themselves would have had."""
    optimizer = AdapterAdamW(weights(torch.float32), rate=1e-2, weight_decay=0.1)
    steps(optimizer, 2)
    plain = {name: tensor.contiguous() for name, tensor in sorted(optimizer.tensors().items())}
    save_file(plain, tmp_path / "plain")
    copies = state.Copies()
    held = copies.of(optimizer.tensors())
    shared = copies.of({"weight": optimizer.live["a"], "turned": optimizer.live["a"].T})
    steps(optimizer, 2)
    state.Snapshot({"copied": held}, {}).write(tmp_path)
    assert (tmp_path / "copied").read_bytes() == (tmp_path / "plain").read_bytes()
    assert shared["weight"] is held["a.master"], "what shares memory is copied once"
    assert shared["turned"].is_contiguous()


def test_copies_are_made_in_the_memory_of_those_before() -> None:
    """New pages took more than half of the time that a training stood still."""
    optimizer = AdapterAdamW(weights(torch.float32), rate=1e-2, weight_decay=0.1)
    steps(optimizer, 1)
    before = state.Copies()
    addresses = {name: copy.data_ptr() for name, copy in before.of(optimizer.tensors()).items()}
    steps(optimizer, 1)
    copies = state.Copies(kept=before.all()).of(optimizer.tensors())
    assert {name: copy.data_ptr() for name, copy in copies.items()} == addresses
    assert all(torch.equal(copies[name], tensor) for name, tensor in optimizer.tensors().items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_first_copies_are_made_in_memory_that_was_there(dtype: torch.dtype) -> None:
    """The first checkpoint stood still three times as long as the next one."""
    optimizer = AdapterAdamW(weights(dtype), rate=1e-2, weight_decay=0.1)
    prepared = state.memory_for_copies(optimizer)
    addresses = {tensor.data_ptr() for tensor in prepared}
    steps(optimizer, 1)
    copies = state.Copies(kept=prepared)
    held = copies.of(optimizer.live) | copies.of(optimizer.tensors())
    assert {
        copy.data_ptr() for name, copy in held.items() if not name.endswith(".step")
    } == addresses


def draw() -> list[float]:
    return [random.random(), float(np.random.normal()), float(torch.rand(1)), random.gauss(0, 1)]


def test_random_generators_continue_from_restored_state(tmp_path: Path) -> None:
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    draw()
    tensors, rest = state.take_rng()
    state.Snapshot({state.RNG: tensors}, {state.RNG_REST: rest}).write(tmp_path)
    expected = [draw() for _ in range(3)]
    draw()
    state.load_rng(tmp_path)
    assert [draw() for _ in range(3)] == expected
