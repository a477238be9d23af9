"""The optimizer of whole weights; several ranks: test_engines.py."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch.distributed.checkpoint.api import CheckpointException
from torch.nn import Parameter

from tests.unit.tunery.ml.optimizers import steps, weights
from tunery.ml import adamw
from tunery.ml.adamw import AdapterAdamW

pytestmark = pytest.mark.train


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


@pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_continues_bit_for_bit_from_restored_state(
    dtype: torch.dtype, fused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fused as on a GPU, whose kernel processors have as well."""
    monkeypatch.setattr(adamw, "is_fused", lambda _: fused)
    first = AdapterAdamW(weights(dtype), rate=1e-2, weight_decay=0.1)
    steps(first, 3)
    save_file(first.tensors(), tmp_path / "optimizer.safetensors")
    steps(first, 4)
    second = AdapterAdamW(weights(dtype), rate=1e-2, weight_decay=0.1)
    second.restore(tmp_path)
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


def test_missing_state_is_an_error(tmp_path: Path) -> None:
    first = AdapterAdamW(weights(torch.float32), rate=1e-2, weight_decay=0.0)
    steps(first, 1)
    tensors = first.tensors()
    del tensors["a.exp_avg_sq"]
    save_file(tensors, tmp_path / "optimizer.safetensors")
    with pytest.raises(CheckpointException, match="exp_avg_sq"):
        first.restore(tmp_path)


def test_a_rehearsal_changes_no_weight() -> None:
    optimizer = AdapterAdamW(weights(torch.bfloat16), rate=1e-2, weight_decay=0.1)
    before = {name: weight.detach().clone() for name, weight in optimizer.live.items()}
    for weight in optimizer.live.values():
        weight.grad = torch.ones_like(weight)
    optimizer.rehearse()
    assert all(torch.equal(before[name], weight) for name, weight in optimizer.live.items())
    assert not optimizer.state
