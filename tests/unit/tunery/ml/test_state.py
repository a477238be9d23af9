import random
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.unit.tunery.ml.optimizers import steps, weights
from tunery.ml import state
from tunery.ml.adamw import AdapterAdamW

pytestmark = pytest.mark.train


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
