"""What our trainer gives to the library's loop: the order of rows, rates, and its options."""

import math
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.unit.tunery.ml.runs import a_run
from tests.unit.tunery.ml.trainings import HYPER
from tunery.ml.order import row_order

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]


def test_each_epoch_has_every_row_once_in_an_order_of_its_own() -> None:
    from tunery.ml.sft import EpochOrder

    order = EpochOrder(seed=42, n_rows=50)
    first = list(order)
    order.set_epoch(1)
    second = list(order)
    assert len(order) == 50
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    assert second == list(row_order(42, 1, 50))


def test_the_first_step_learns_and_the_rate_falls_to_the_end(tmp_path: Path) -> None:
    import torch

    from tunery.ml.adamw import AdapterAdamW
    from tunery.ml.sft import _schedule

    run = a_run(tmp_path, replace(HYPER, warmup=0.5, scheduler="cosine"))
    layer = torch.nn.Linear(2, 2)
    weights = dict(layer.named_parameters())
    adamw = AdapterAdamW(weights, rate=0.01, weight_decay=0.0, ratio=1.0, whole=False)
    schedule = _schedule(run, adamw)
    rates = []
    for _ in range(run.plan.total_steps):
        rates.append(adamw.param_groups[0]["lr"])
        adamw.step()
        schedule.step()
    assert rates[0] > 0  # the library's own warm-up begins with a step at zero
    assert max(rates) == pytest.approx(0.01)
    assert rates[-1] < rates[3]


@pytest.mark.parametrize(("asked", "maximum"), [(0.0, math.inf), (1.5, 1.5)])
def test_a_norm_of_zero_means_measured_and_not_clipped(
    tmp_path: Path, asked: float, maximum: float
) -> None:
    from tunery.ml.sft import _arguments

    options = _arguments(a_run(tmp_path, replace(HYPER, grad_norm_max=asked)), on_cpu=True)
    assert options.max_grad_norm == maximum


def test_the_librarys_own_checkpoints_and_logs_are_off(tmp_path: Path) -> None:
    from tunery.ml.sft import _arguments

    options = _arguments(a_run(tmp_path, replace(HYPER, max_steps=4)), on_cpu=True)
    assert options.max_steps == a_run(tmp_path).plan.total_steps
    assert (options.save_strategy, options.report_to) == ("no", [])
    assert not options.logging_nan_inf_filter  # a loss that is no number must be seen
