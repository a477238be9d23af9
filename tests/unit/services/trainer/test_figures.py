"""Metrics of trainings: what an alert asks of them, and that they end with what they are about."""

from typing import Final

import pytest
from msgspec.structs import replace
from prometheus_client import REGISTRY

from services.trainer.domain.rank_times import STEPS
from services.trainer.figures import SPEEDS_KEPT, SPEEDS_MIN, NodeMeter
from services.trainer.ports import DeviceUse
from tests.unit.tunery.work.samples import STARTED
from tunery.work.events import StepCompleted

STEP: Final = StepCompleted(
    step=1,
    total_steps=1_000,
    epoch=0.1,
    loss=2.0,
    grad_norm=1.0,
    learning_rate=1e-4,
    mean_token_accuracy=None,
    tokens=500,
    tokens_total=500_000,
    tokens_per_s=100.0,
    elapsed_ms=2_000,
)


def figures(meter: NodeMeter) -> dict[str, float]:
    """Values by the name of the metric, and of its labels."""
    return {
        figure.metric.name.removeprefix("tunery_") + "".join(figure.labels): figure.value
        for figure in meter.figures()
    }


def counted(name: str) -> float:
    return REGISTRY.get_sample_value(f"tunery_{name}") or 0.0


def test_the_training_that_is_worst_off_is_reported() -> None:
    meter = NodeMeter()
    assert figures(meter) == {"trainings_running": 0}
    meter.begin(1, STARTED, (), 10_000)
    meter.begin(2, STARTED, (), 20_000)
    meter.step(1, STEP, 50_000)
    meter.step(2, STEP, 40_000)
    meter.store(2, 1_500, 60_000)
    expected = {
        "trainings_running": 2,
        "training_last_step_timestamp_seconds": 40,
        "training_last_checkpoint_timestamp_seconds": 10,
    }
    assert figures(meter) == expected
    meter.end(1)
    assert figures(meter)["training_last_checkpoint_timestamp_seconds"] == 60
    meter.end(2)
    meter.end(2)
    assert figures(meter) == {"trainings_running": 0}


def test_speed_is_compared_with_what_was_usual_in_the_same_training() -> None:
    meter = NodeMeter()
    meter.begin(1, STARTED, (), 0)
    meter.begin(2, STARTED, (), 0)
    for at in range(SPEEDS_MIN - 1):
        meter.step(1, STEP, at)
    assert "training_speed_ratio" not in figures(meter), "too few steps"
    for at in range(SPEEDS_KEPT):
        meter.step(1, STEP, at)
        meter.step(2, replace(STEP, tokens_per_s=7.0), at)
    assert figures(meter)["training_speed_ratio"] == 1
    for at in range(3):
        meter.step(2, replace(STEP, tokens_per_s=2.8), at)
        meter.step(1, replace(STEP, tokens_per_s=None), at)
    assert figures(meter)["training_speed_ratio"] == pytest.approx(0.4)


def test_tokens_of_a_resumed_training_count_from_its_checkpoint() -> None:
    meter = NodeMeter()
    tokens, steps, seconds = (
        counted(name)
        for name in (
            "training_tokens_total",
            "training_step_seconds_count",
            "training_step_seconds_sum",
        )
    )
    meter.begin(1, replace(STARTED, tokens=400, elapsed_ms=1_500), (), 0)
    meter.step(1, STEP, 0)
    meter.step(1, replace(STEP, tokens=650, elapsed_ms=2_250), 0)
    meter.step(9, STEP, 0)  # of a training that never began
    assert counted("training_tokens_total") - tokens == 250
    assert counted("training_step_seconds_count") - steps == 2
    assert counted("training_step_seconds_sum") - seconds == 0.75


def test_devices_of_trainings_differ_from_free_ones() -> None:
    meter = NodeMeter(lambda: {0: DeviceUse(2, 700), 1: DeviceUse(95, 900)})
    meter.begin(1, STARTED, (1,), 0)
    values = figures(meter)
    assert {name: value for name, value in values.items() if name.startswith("device")} == {
        "device_busy_ratio0": 0.02,
        "device_busy_ratio1": 0.95,
        "device_memory_used_bytes0": 700,
        "device_memory_used_bytes1": 900,
        "device_training0": 0,
        "device_training1": 1,
    }


def test_of_trainings_with_ranks_the_one_that_waits_most_is_reported() -> None:
    meter = NodeMeter()
    for lease in (1, 2, 3):
        meter.begin(lease, STARTED, (), 0)
    for at in range(STEPS):
        meter.step(1, replace(STEP, rank_ms=(100, 300)), at)
        meter.step(2, replace(STEP, rank_ms=(100, 110)), at)
        meter.step(3, STEP, at)
    assert figures(meter)["training_slowest_rank_ratio"] == 3
    assert meter.slowest_rank(1) == (1, 3)
    assert meter.slowest_rank(3) is None
    meter.end(1)
    assert figures(meter)["training_slowest_rank_ratio"] == pytest.approx(1.1)
    assert meter.slowest_rank(1) is None


def test_a_training_is_as_busy_as_the_mean_of_its_devices() -> None:
    use = {0: DeviceUse(90, 1), 1: DeviceUse(31, 1), 2: DeviceUse(0, 1)}
    meter = NodeMeter(lambda: use)
    meter.begin(1, STARTED, (0, 1), 0)
    meter.begin(2, STARTED, (), 0)
    meter.begin(3, STARTED, (7,), 0)
    assert [meter.busy_percent(lease) for lease in (1, 2, 3, 4)] == [60, None, None, None]


def test_a_session_that_waits_for_its_client_stands_not_still_and_one_that_computes_may() -> None:
    meter = NodeMeter()
    meter.begin(1, STARTED, (), 10_000)
    meter.wait(1, 4_000_000)
    shown = figures(meter)
    assert shown["training_last_step_timestamp_seconds"] == 4_000
    assert shown["training_last_checkpoint_timestamp_seconds"] == 4_000
    before = REGISTRY.get_sample_value(
        "tunery_session_commands_total", {"kind": "forward", "outcome": "failed"}
    )
    meter.answer(1, "forward", 250, 5_000_000, failed=True)
    shown = figures(meter)
    assert shown["training_last_step_timestamp_seconds"] == 5_000
    assert shown["training_last_checkpoint_timestamp_seconds"] == 4_000
    after = REGISTRY.get_sample_value(
        "tunery_session_commands_total", {"kind": "forward", "outcome": "failed"}
    )
    assert after == (before or 0) + 1
    meter.end(1)
    meter.wait(1, 6_000_000)
    meter.answer(1, "forward", 250, 6_000_000, failed=False)
    assert figures(meter) == {"trainings_running": 0}
