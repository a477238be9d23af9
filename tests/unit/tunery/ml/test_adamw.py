"""The optimizer in one process, and with its work dealt to ranks: to the same bits."""

from collections.abc import Mapping
from functools import reduce

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

from tests.unit.tunery.ml.optimizers import steps, weights, with_ranks
from tunery.ml.adamw import AdapterAdamW
from tunery.ml.ranks import ALONE, Ranks
from tunery.ml.state import Copies

pytestmark = pytest.mark.train

STEPS, MICRO_BATCHES, PART_BYTES = 3, 2, 640
SIZES = {"q.lora_A": (4, 33), "q.lora_B": (40, 4), "norm": (33,), "table": (90, 7), "x": (1,)}


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


def some_weights(dtype: torch.dtype) -> dict[str, Parameter]:
    """Of several sizes; one is not contiguous, as it may be where files are converted."""
    dice = torch.Generator().manual_seed(1)
    tensors = {
        f"m.{name}.weight": torch.randn(size, generator=dice) for name, size in SIZES.items()
    }
    tensors["m.table.weight"] = tensors["m.table.weight"].T.contiguous().T
    return {name: Parameter(tensor.to(dtype)) for name, tensor in tensors.items()}


def gradients(step: int, number: int) -> dict[str, list[Tensor]]:
    """Of each micro-batch of a rank, in bf16; one weight has none in rank 1, another nowhere."""
    dice = torch.Generator().manual_seed(10 * step + number)
    tensors = {
        f"m.{name}.weight": [
            torch.randn(size, generator=dice).bfloat16() for _ in range(MICRO_BATCHES)
        ]
        for name, size in SIZES.items()
    }
    del tensors["m.x.weight"]
    return {name: each for name, each in tensors.items() if (name, number) != ("m.norm.weight", 1)}


def optimizer_of(kind: str, dtype: torch.dtype, ranks: Ranks = ALONE) -> AdapterAdamW:
    return AdapterAdamW(
        some_weights(dtype),
        rate=1e-2,
        weight_decay=0.1,
        ratio=16.0 if kind == "lora_plus" else 1.0,
        whole=kind == "full",
        ranks=ranks,
    )


def backward(optimizer: AdapterAdamW, own: Mapping[str, list[Tensor]]) -> None:
    for name, of_micro_batches in own.items():
        for gradient in of_micro_batches:
            weight = optimizer.live[name]
            (weight * gradient.to(weight.dtype)).sum().backward()  # type: ignore[no-untyped-call]  # torch


def plain_norms(optimizer: AdapterAdamW, step: int, count: int) -> float:
    """Give it the sum over all ranks in their order, and clip as torch does; the norm."""
    for name, master in optimizer.masters.items():
        of_ranks = [gradients(step, number).get(name) for number in range(count)]
        if of_ranks[0] is not None:
            zeros = [torch.zeros_like(each) for each in of_ranks[0]]
            sums = [
                reduce(torch.add, [gradient.float() for gradient in each or zeros])
                for each in of_ranks
            ]
            master.grad = reduce(torch.add, sums).contiguous()
    return float(torch.nn.utils.clip_grad_norm_(list(optimizer.masters.values()), 1.0))


def bits(tensors: Mapping[str, Tensor]) -> dict[str, bytes]:
    return {
        name: tensors[name].detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        for name in sorted(tensors)
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["lora", "lora_plus", "full"])
@pytest.mark.parametrize("count", [2, 4, 7])
def test_shares_of_ranks_are_stepped_to_the_bits_of_one_that_steps_all(
    count: int, kind: str, dtype: torch.dtype
) -> None:
    """Of seven ranks two have no weight. What the first gathers is what one process has, and goes
    on with other numbers of ranks.
    """
    alone = optimizer_of(kind, dtype)
    norms = []
    for step in range(STEPS):
        norms.append(plain_norms(alone, step, count))
        alone.step()

    def be_rank(ranks: Ranks) -> tuple[list[float], dict[str, bytes], dict[str, Tensor]]:
        optimizer, own = optimizer_of(kind, dtype, ranks), []
        for step in range(STEPS):
            backward(optimizer, gradients(step, ranks.number))
            own.append(float(optimizer.clip(1.0)))
            graded = {name for name, m in optimizer.masters.items() if m.grad is not None}
            assert graded == set(optimizer.masters) - {"m.x.weight"}
            kept = [total for total in optimizer.live.values() if total.grad is not None]
            assert len(kept) == (len(graded) if dtype == torch.float32 else 0), "others are freed"
            optimizer.step()
        tensors = {}
        if ranks.is_first:
            tensors = Copies().of_all_ranks(optimizer)
        else:
            optimizer.give()
        assert len(optimizer.state) <= -(-len(SIZES) // count) + 1
        return own, bits(optimizer.live), tensors

    results = with_ranks(count, be_rank, PART_BYTES)
    for own, live, _ in results:
        assert own == norms
        assert live == bits(alone.live)
    gathered = results[0][2]
    assert bits(gathered) == bits(alone.tensors())
    assert list(gathered) == sorted(gathered)

    # a weight without a gradient has no state, and cannot be resumed: it is of no training
    whole = {**gathered, **{f"m.x.weight.{m}": torch.zeros(1) for m in ("exp_avg", "exp_avg_sq")}}
    whole["m.x.weight.step"] = torch.tensor(0.0)
    groups = alone.groups()
    alone.restore(whole, groups)
    plain_norms(alone, STEPS, 3)
    alone.step()

    def go_on(ranks: Ranks) -> dict[str, bytes]:
        optimizer = optimizer_of(kind, dtype, ranks)
        optimizer.restore_weights(whole)
        optimizer.restore(whole, groups)
        backward(optimizer, gradients(STEPS, ranks.number))
        optimizer.clip(1.0)
        optimizer.step()
        return bits(optimizer.live)

    assert with_ranks(3, go_on, PART_BYTES) == [bits(alone.live)] * 3


def test_a_rehearsal_changes_no_weight_and_asks_no_other_rank() -> None:
    """A node that has a proof leaves it out, and others do not wait for it."""

    def be_rank(ranks: Ranks) -> bool:
        optimizer = optimizer_of("full", torch.bfloat16, ranks)
        before = bits(optimizer.live)
        if ranks.is_first:
            backward(optimizer, gradients(0, 0))
            optimizer.rehearse()
        return bits(optimizer.live) == before and not optimizer.state

    assert with_ranks(2, be_rank, PART_BYTES) == [True, True]
